"""One connection: a DEALER socket and the monitor that tells when it ends. Owned by the thread of its client."""

from __future__ import annotations

from collections.abc import Sequence

import zmq
from zmq.backend import zmq_poll
from zmq.utils.monitor import recv_monitor_message

from schemas.wire import MAX_HEADER_BYTES, MAX_PACKED

from .errors import ServerUnreachable
from .session import BY_REFERENCE_BYTES, Frame

# Until the server is there; afterwards a connection that ends is never used again.
RECONNECT_MS = 50
# What was just sent, such as a Cancel, may still leave when a client closes.
LINGER_MS = 200
# A peer that is silent this long over TCP is gone. Long, because a server that was merely stopped for a while is not.
HEARTBEAT_MS = 1_000
HEARTBEAT_TIMEOUT_MS = 10_000

_HANDSHAKE_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_MORE = zmq.SNDMORE | zmq.NOBLOCK


class Connection:
    """A socket that is used until its connection ends.

    Attributes:
        end: how it has ended, "" as long as nobody has seen that.

    Raises:
        ServerUnreachable: *endpoint* is not one.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self.end = ""
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        # Replies are bounded by the calls in flight. With a mark, one that arrived might not be seen before the connection's end.
        self._socket.setsockopt(zmq.RCVHWM, 0)
        if endpoint.startswith("tcp:"):
            self._socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
            self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | _HANDSHAKE_FAILED)
        self._recv, self._send = self._socket.recv, self._socket.send
        self._readable = [(self._socket, zmq.POLLIN), (self._monitor, zmq.POLLIN)]
        self._both_ways = [(self._socket, zmq.POLLIN | zmq.POLLOUT), (self._monitor, zmq.POLLIN)]
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close(linger_ms=0)
            cure = "expected ipc://PATH with at most 107 bytes or tcp://HOST:PORT"
            raise ServerUnreachable(f"{endpoint}: cannot be connected to ({error.strerror.lower()}); {cure}") from None

    def send(self, header: bytes, frames: Sequence[Frame]) -> bool:
        """Send one message without waiting; False when the socket takes none now."""
        try:
            self._send(header, _MORE if frames else zmq.NOBLOCK)
        except zmq.Again:
            return False
        # The first part was taken, so the message has a place, and the others never wait.
        for frame in frames[:-1]:
            self._send(frame, zmq.SNDMORE, copy=len(frame) < BY_REFERENCE_BYTES)
        for frame in frames[-1:]:
            self._send(frame, 0, copy=len(frame) < BY_REFERENCE_BYTES)
        return True

    def receive(self) -> tuple[bytes, Sequence[Frame]] | None:
        """Return one message that has arrived, its large frames not copied; None when there is none."""
        try:
            # A Frame that knows whether more follows costs less than a socket option per part.
            first = self._recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        if not first.more:
            return first.bytes, ()
        rest: list[Frame] = []
        more = True
        while more:
            part = self._recv(copy=False)
            more = part.more
            # One above the limit is enough for the session to see that there are too many.
            if len(rest) <= MAX_PACKED:
                rest.append(part.bytes if len(part) <= MAX_HEADER_BYTES else part.buffer.toreadonly())
        return first.bytes, rest

    def poll(self, timeout_ms: int, *, to_send: bool = False) -> None:
        """Wait until a message, the end of the connection, or with *to_send* room for a message is there."""
        for socket, _ in zmq_poll(self._both_ways if to_send else self._readable, timeout_ms):
            if socket is self._monitor:
                self._read_end()

    def has_ended(self) -> bool:
        """Return whether the connection has ended, without waiting."""
        if int(self._monitor.get(zmq.EVENTS)) & zmq.POLLIN:
            self._read_end()
        return bool(self.end)

    def _read_end(self) -> None:
        event = recv_monitor_message(self._monitor)["event"]
        is_disconnected = event == zmq.EVENT_DISCONNECTED
        self.end = "the server closed the connection" if is_disconnected else "what listens there is no Slotline server"

    def close(self, *, linger_ms: int = LINGER_MS) -> None:
        """Give the socket back."""
        self._socket.disable_monitor()
        self._socket.close(linger_ms)
