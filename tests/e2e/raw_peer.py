"""A TCP peer that writes ZMTP byte by byte, or something that is not: what no ZeroMQ library would send."""

from __future__ import annotations

import contextlib
import socket
from types import TracebackType

from server import PATIENCE_S

MORE, LONG, COMMAND = 1, 2, 4
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


def frame(body: bytes, flags: int = 0) -> bytes:
    """Return one frame of ZMTP 3."""
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return bytes([flags | LONG]) + len(body).to_bytes(8, "big") + body


READY = frame(b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER", COMMAND)


class RawPeer:
    """One TCP connection to *endpoint* (tcp://HOST:PORT)."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)

    def shake_hands(self) -> RawPeer:
        """Become a DEALER in the eyes of the server."""
        self.socket.sendall(GREETING + READY)
        self.read(len(GREETING))
        assert self.read(2)[0] == COMMAND
        return self

    def read(self, size: int) -> bytes:
        """Return exactly so many bytes."""
        received = b""
        while len(received) < size:
            part = self.socket.recv(size - len(received))
            assert part, f"cut off after {received!r}"
            received += part
        return received

    def send(self, raw: bytes) -> bool:
        """Send *raw*; return False when the server has ended the connection."""
        try:
            self.socket.sendall(raw)
        except (ConnectionError, TimeoutError):
            return False
        return True

    def is_cut(self) -> bool:
        """Wait until the server ends the connection; False when it does not in all our patience."""
        with contextlib.suppress(ConnectionError):
            while True:
                try:
                    if not self.socket.recv(65_536):
                        return True
                except TimeoutError:
                    return False
        return True

    def __enter__(self) -> RawPeer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.socket.close()
