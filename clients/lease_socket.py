"""Asking for a lease: the handshake on the server's Unix socket, and the mapping. Nothing here knows a call or a request."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import time
import weakref

from schemas.leases import MAX_ANSWER_BYTES, Answer, Ask, LeaseOp, read_answer, write_ask
from schemas.messages import Failure
from schemas.status import Code

from .errors import RequestRefused, ServerUnreachable, error_of
from .session import Session

# Between two tries while others crowd at the server's lease socket.
CROWDED_S = 0.005


def take_lease(path: str, ask: Ask, timeout_s: float) -> tuple[Answer, mmap.mmap]:
    """Ask for a region and map it; the server gets it back when the mapping is gone, or this process.

    Raises:
        ServerUnreachable: the socket cannot be reached from here, or nobody answers there in time.
        RequestRefused: the server lends none (now: Busy).
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    descriptors: list[int] = []
    try:
        answer = _ask(connection, path, write_ask(ask), timeout_s, descriptors)
        if answer.code:
            raise error_of(Failure(answer.code, answer.message, answer.retry_after_us, field="lease"))
        memory = mmap.mmap(descriptors[0], answer.frames * answer.stride, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        memory.madvise(mmap.MADV_DONTFORK)
    except BaseException:
        connection.close()
        raise
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    # After munmap, which the mapping's end does first. Not at exit: there the mapping goes with the process.
    weakref.finalize(memory, _say_goodbye, connection).atexit = False
    return answer, memory


def ask_of(session: Session, frame_bytes: int, frames: int) -> tuple[str, Ask]:
    """Return where a connection's server lends regions, and how to ask there.

    Raises:
        RequestRefused: it lends none.
    """
    path, token = session.lease_access
    if not path:
        raise RequestRefused(
            Code.NOT_SUPPORTED, "lease: this server lends none: its config says so by leases.count", field="lease"
        )
    return path, Ask(LeaseOp.LEASE, token, frame_bytes, frames)


def _ask(connection: socket.socket, path: str, packet: bytes, timeout_s: float, descriptors: list[int]) -> Answer:
    connection.settimeout(timeout_s)
    try:
        _connect(connection, path, time.monotonic() + timeout_s)
        connection.send(packet)
        reply, received, _, _ = socket.recv_fds(connection, MAX_ANSWER_BYTES, 1)
    except OSError as error:
        reason = (error.strerror or "nobody answers in time").lower()
        cure = "leases are for programs of the server's user on its machine"
        raise ServerUnreachable(f"{path}: {reason}; {cure}") from None
    descriptors.extend(received)
    answer = read_answer(reply)
    if answer is None or (not answer.code and not received):
        raise ServerUnreachable(f"{path}: what listens there lends no leases")
    return answer


def _connect(connection: socket.socket, path: str, until: float) -> None:
    """Connect; a socket with a timeout does not wait by itself for room in a crowded queue."""
    while True:
        try:
            connection.connect(path)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(CROWDED_S)


def _say_goodbye(connection: socket.socket) -> None:
    """Tell the server that nothing here can write into its region any more."""
    with contextlib.suppress(OSError):
        connection.setblocking(False)
        connection.send(write_ask(Ask(LeaseOp.GOODBYE)))
    connection.close()
