"""A TCP proxy that does to a connection what networks do: single bytes, delay, reset, half-open. It looks at no byte."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

CHUNK = 65_536
# In slices: so many single bytes, then the rest at once, so that a frame is cut in its head, its middle and at its end.
SLICED_BYTES = 64
TURN_S = 0.01


@dataclass(eq=False, slots=True)
class _Link:
    """One direction of one connection."""

    source: socket.socket
    target: socket.socket
    waiting: list[tuple[float, bytes]] = field(default_factory=list)


class Proxy:
    """Listens on a port of its own and passes everything on to *target*, as ``mode`` says: pass, slice, delay or half_open.

    One thread of its own; whoever made it changes ``mode`` and calls ``reset``, which both take effect at its next turn.
    """

    DELAY_S = 0.2

    def __init__(self, target: tuple[str, int]) -> None:
        self.mode = "pass"
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._links: list[_Link] = []
        self._reset_asked = threading.Event()
        self._reset_done = threading.Event()
        self._ended = threading.Event()
        self.connections = 0
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def reset(self) -> None:
        """End every connection with a RST, and return when it is done; what was under way is gone."""
        self._reset_done.clear()
        self._reset_asked.set()
        self._reset_done.wait(10.0)

    def close(self) -> None:
        """End the thread and every connection."""
        self._ended.set()
        self._thread.join()
        self._reset_all()
        self._listener.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._reset_asked.is_set():
                self._reset_asked.clear()
                self._reset_all()
                self._reset_done.set()
            # Half-open: nothing is read, so both kernels think that all is well until their buffers are full.
            sources = [] if self.mode == "half_open" else [link.source for link in self._links]
            readable, _, _ = select.select([self._listener, *sources], [], [], TURN_S)
            if self._listener in readable:
                self._accept()
            for link in list(self._links):
                if link.source in readable:
                    self._read(link)
                self._write_due(link)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._links += [_Link(client, server), _Link(server, client)]
        self.connections += 1

    def _read(self, link: _Link) -> None:
        try:
            raw = link.source.recv(CHUNK)
        except OSError:
            raw = b""
        if not raw:
            self._drop(link)
            return
        due = time.monotonic() + (self.DELAY_S if self.mode == "delay" else 0.0)
        link.waiting.append((due, raw))

    def _write_due(self, link: _Link) -> None:
        while link.waiting and link.waiting[0][0] <= time.monotonic():
            _, raw = link.waiting.pop(0)
            single = SLICED_BYTES if self.mode == "slice" else 0
            try:
                for at in range(min(single, len(raw))):
                    link.target.sendall(raw[at : at + 1])
                link.target.sendall(raw[single:])
            except OSError:
                self._drop(link)
                return

    def _drop(self, link: _Link) -> None:
        """End both directions of a connection."""
        ends = {link.source, link.target}
        self._links = [other for other in self._links if other.source not in ends]
        for end in ends:
            end.close()

    def _reset_all(self) -> None:
        for end in {link.source for link in self._links}:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()
        self._links = []
