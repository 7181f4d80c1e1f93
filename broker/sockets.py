"""The broker's sockets and their settings; the reasons are in docs/protocol.md. Nothing here decides anything."""

from __future__ import annotations

import ctypes
import errno
import os
import time

import zmq

from schemas.config import ServerConfig
from schemas.status import ConfigError

from .curve import Keeper

# A TCP peer that does not finish its handshake in this time is cut off.
HANDSHAKE_MS = 1000
BACKLOG = 1024
# A client that looks for its server on a port chosen at random may be connected to itself by the kernel, and then has the port.
REBIND_S, RETRY_S = 5.0, 0.05
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
    keeper: Keeper | None = None,
    *,
    reply_bytes: int,
) -> zmq.Socket[bytes]:
    """Return a ROUTER for clients, not bound yet: told of peers that are gone, never blocking, frames bounded, heartbeats on.

    Args:
        keeper: who says which keys may come in; None where none are asked for.
        reply_bytes: of the largest reply.
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


def bind(socket: zmq.Socket[bytes], endpoint: str, *, patience_s: float) -> None:
    """Bind to the clients' or the control endpoint.

    Args:
        patience_s: how long an address in use is tried again.

    Raises:
        ConfigError: it cannot be bound; one line with the cure.
    """
    until_s = time.monotonic() + patience_s
    # A socket file left by a killed server would be taken over silently by bind; the lock file says whether its owner lives.
    old_mask = os.umask(0o077)
    try:
        while not _try_bind(socket, endpoint, is_last=time.monotonic() >= until_s):
            time.sleep(RETRY_S)
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


def _try_bind(socket: zmq.Socket[bytes], endpoint: str, *, is_last: bool) -> bool:
    """Bind; return False when the address is in use and this was not the last try."""
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        if is_last or error.errno != errno.EADDRINUSE:
            raise
        return False
    return True
