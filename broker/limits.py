"""What the broker's process may take of the machine: descriptors as many as there are, memory up to a wall.

The wall is the last one. Everything that the broker itself keeps has a bound of its own; but ZeroMQ collects a message before it
shows a byte of it, and has no bound on the number of its frames.
"""

from __future__ import annotations

import resource

from schemas.config import Config
from schemas.private_memory import limit_private_memory
from schemas.wire import MAX_HEADER_BYTES

from .outbox import FULL_OUTBOXES

_MIB = 1 << 20
# Python's own objects, and what malloc does not give back.
_BASE_BYTES = 128 * _MIB
_WASTE = 2


def raise_descriptor_limit() -> None:
    """Allow as many connections as the system lets us: at the limit ZeroMQ's thread spins and nobody new is served."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def limit_memory(config: Config) -> None:
    """Let this process take ``server.memory_limit_mb`` beyond what it has now. To be called once everything is set up."""
    limit_private_memory(memory_limit_bytes(config))


def memory_limit_bytes(config: Config) -> int:
    """Return the limit that *config* says, or what follows from its other limits."""
    server = config.server
    if server.memory_limit_mb:
        return server.memory_limit_mb * _MIB
    backlogs = sum(lane.backlog_bytes + lane.backlog * MAX_HEADER_BYTES for lane in config.lanes)
    # A peer that is slow, or whose message is just coming in: its outbox, and a message on either side.
    peers = FULL_OUTBOXES * (server.outbox_bytes + 2 * server.max_message_bytes)
    return _BASE_BYTES + _WASTE * (backlogs + peers)
