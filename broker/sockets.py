"""The broker's sockets and their settings; the reasons are in docs/protocol.md. Nothing here decides anything."""

from __future__ import annotations

import ctypes
import errno
import os

import zmq

from schemas.config import ServerConfig
from schemas.status import ConfigError

from .curve import Keeper

# A TCP peer that does not finish its handshake in this time is cut off.
HANDSHAKE_MS = 1000
BACKLOG = 1024
LINGER_MS = 1000
# Replies that ZeroMQ keeps for one client before they go to its outbox. Few enough that they are about as many bytes as that has;
# enough that a batch of them is taken at once.
MIN_SEND_QUEUE, MAX_SEND_QUEUE = 32, 1000


def seed_routing_ids() -> None:
    """Make automatic routing ids unpredictable: libzmq takes their start from libc's ``rand``, which nobody seeds."""
    ctypes.CDLL(None).srand(int.from_bytes(os.urandom(4), "little"))


def front_router(
    context: zmq.Context[zmq.Socket[bytes]],
    config: ServerConfig,
    endpoint: str,
    keeper: Keeper | None = None,
    *,
    reply_bytes: int,
) -> zmq.Socket[bytes]:
    """Bind a ROUTER for clients: told of peers that are gone, never blocking, frames bounded, heartbeats on.

    Args:
        keeper: who says which keys may come in; None where none are asked for.
        reply_bytes: of the largest reply.

    Raises:
        ConfigError: the endpoint cannot be bound; one line with the cure.
    """
    router = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    router.setsockopt(zmq.ROUTER_HANDOVER, 0)
    router.setsockopt(zmq.SNDHWM, min(max(config.outbox_bytes // reply_bytes, MIN_SEND_QUEUE), MAX_SEND_QUEUE))
    router.setsockopt(zmq.LINGER, LINGER_MS)
    router.setsockopt(zmq.MAXMSGSIZE, config.max_message_bytes)
    router.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    router.setsockopt(zmq.HEARTBEAT_IVL, config.heartbeat_ms)
    router.setsockopt(zmq.HEARTBEAT_TIMEOUT, config.heartbeat_timeout_ms)
    router.setsockopt(zmq.BACKLOG, BACKLOG)
    if keeper is not None:
        keeper.guard(router)
    _bind(router, endpoint)
    return router


def sink_pull(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """Bind the PULL to which hops return; slots bound what can be in it."""
    pull = context.socket(zmq.PULL)
    pull.setsockopt(zmq.RCVHWM, 0)
    pull.bind(endpoint)
    return pull


def hop_push(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """Connect a PUSH to a worker, without high-water mark and without lingering."""
    push = context.socket(zmq.PUSH)
    push.setsockopt(zmq.SNDHWM, 0)
    push.setsockopt(zmq.LINGER, 0)
    push.connect(endpoint)
    return push


def _bind(socket: zmq.Socket[bytes], endpoint: str) -> None:
    # A socket file left by a killed server would be taken over silently by bind; the lock file says whether its owner lives.
    old_mask = os.umask(0o077)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        cures = {
            errno.EADDRINUSE: "is in use: stop the other server or choose another endpoint",
            errno.EACCES: "no rights there: choose a directory of yours, or a port above 1023",
            errno.ENODEV: "no such network interface: name an address of this machine",
            errno.ENOENT: "its directory does not exist",
        }
        cure = cures.get(error.errno or 0, f"cannot be bound ({error.strerror.lower()})")
        raise ConfigError(f"server.endpoint {endpoint}: {cure}") from None
    finally:
        os.umask(old_mask)
