"""One connection: a DEALER socket and the monitor that tells when it ends. Owned by the thread of its client."""

from __future__ import annotations

from collections.abc import Sequence

import zmq
from zmq.backend import zmq_poll
from zmq.utils.monitor import recv_monitor_message

from schemas.wire import MAX_HEADER_BYTES, MAX_PACKED

from .errors import ServerUnreachable
from .keys import Keys
from .session import BY_REFERENCE_BYTES, Frame

# Until the server is there; afterwards a connection that ends is never used again.
RECONNECT_MS = 50
# What was just sent, such as a Cancel, may still leave when a client closes.
LINGER_MS = 200
# A peer that is silent this long over TCP is gone. Long, because a server that was merely stopped for a while is not.
HEARTBEAT_MS = 1_000
HEARTBEAT_TIMEOUT_MS = 10_000

_HANDSHAKE_FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_MECHANISM_MISMATCH = int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
_MORE = zmq.SNDMORE | zmq.NOBLOCK
_UNKNOWN_KEY = "the server does not have this client's public key on its list: have it put into its curve.clients directory"
_WANTS_KEYS = "the server takes clients with keys only: give server_key, and key or key_file"
_NO_SERVER = "what listens there is no Slotline server"
# What a wrong server_key looks like, and little else.
CUT_SHORT = "the server broke off the handshake: see whether server_key is its public key, and whether it uses keys at all"
# Without keys and with them.
_CUT_SHORT = (f"{_NO_SERVER}, or one that takes clients with keys only", CUT_SHORT)
_USES_NO_KEYS = "the server there uses no keys: leave server_key away, or name another endpoint"


def _cure(endpoint: str) -> str:
    """Return what would have been right instead of an *endpoint* that is none."""
    form = "expected ipc://PATH with at most 107 bytes or tcp://HOST:PORT"
    if "://" in endpoint or not endpoint:
        return form
    host, _, port = endpoint.rpartition(":")
    is_tcp = host and "/" not in host and port.isdecimal()
    return f"{form}; did you mean {'tcp' if is_tcp else 'ipc'}://{endpoint}?"


class Connection:
    """A socket that is used until its connection ends.

    Args:
        keys: for a server with CURVE.

    Attributes:
        end: how it has ended, "" as long as nobody has seen that.
        refusal: why the server does not take this client and will not the next time, "" if it has not said so.
        was_cut_short: whether the server broke off a handshake with keys without a word.

    Raises:
        ServerUnreachable: *endpoint* is not one.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, keys: Keys | None = None) -> None:
        self.end = ""
        self.refusal = ""
        self.was_cut_short = False
        self._has_keys = keys is not None
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        # Replies are bounded by the calls in flight. With a mark, one that arrived might not be seen before the connection's end.
        self._socket.setsockopt(zmq.RCVHWM, 0)
        if endpoint.startswith("tcp:"):
            self._socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
            self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        if keys is not None:
            keys.apply(self._socket)
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | _HANDSHAKE_FAILED)
        self._recv, self._send = self._socket.recv, self._socket.send
        self._readable = [(self._socket, zmq.POLLIN), (self._monitor, zmq.POLLIN)]
        self._both_ways = [(self._socket, zmq.POLLIN | zmq.POLLOUT), (self._monitor, zmq.POLLIN)]
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close(linger_ms=0)
            raise ServerUnreachable(f"{endpoint}: cannot be connected to ({error.strerror.lower()}); {_cure(endpoint)}") from None

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

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors that an event loop watches: news of messages, and of the connection's end.

        They tell of news since the socket was last looked at, by ``look`` or ``has_ended``, or was sent on.
        """
        return self._socket.fileno(), self._monitor.fileno()

    def look(self) -> tuple[bool, bool]:
        """Return whether a message has arrived, and whether there is room for one to send."""
        events = int(self._socket.get(zmq.EVENTS))
        return bool(events & zmq.POLLIN), bool(events & zmq.POLLOUT)

    def has_ended(self) -> bool:
        """Return whether the connection has ended, without waiting."""
        if int(self._monitor.get(zmq.EVENTS)) & zmq.POLLIN:
            self._read_end()
        return bool(self.end)

    def _read_end(self) -> None:
        message = recv_monitor_message(self._monitor)
        event = message["event"]
        is_other_mechanism = event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and message["value"] == _MECHANISM_MISMATCH
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self.end = self.refusal = _UNKNOWN_KEY
        elif is_other_mechanism:
            self.end = self.refusal = _USES_NO_KEYS if self._has_keys else _WANTS_KEYS
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            # What a wrong server_key looks like, or another mechanism when the server hangs up before its greeting is read. But
            # so does a server that ends just then.
            self.end, self.was_cut_short = _CUT_SHORT[self._has_keys], self._has_keys
        else:
            is_disconnected = event == zmq.EVENT_DISCONNECTED
            self.end = "the server closed the connection" if is_disconnected else _NO_SERVER

    def close(self, *, linger_ms: int = LINGER_MS) -> None:
        """Give the socket back."""
        self._socket.disable_monitor()
        self._socket.close(linger_ms)
