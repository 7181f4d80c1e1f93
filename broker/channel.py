"""The broker's line to the supervisor: one JSON object per packet over an inherited socket pair. Neither zmq nor numpy.

To the broker: ``prepare`` (process, replica), ``reaped`` (incarnation), ``unavailable`` (process, reason),
``terminate``.
To the supervisor: ``start`` (process, replica, incarnation), ``up`` (incarnation), ``later`` (process, replica), ``serving``
(endpoint), ``kill`` (incarnation, reason),
``refused`` (reason).
"""

from __future__ import annotations

import json
import socket
from collections import deque
from typing import Any

# One packet is one small object; the kernel keeps their bounds.
MAX_PACKET_BYTES = 65_536


class Channel:
    """One end of the line; ``receive`` never waits."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._unsent: deque[bytes] = deque()

    def fileno(self) -> int:
        """Return the descriptor, for polling."""
        return self._socket.fileno()

    def send(self, event: str, **values: int | str) -> None:
        """Send one event, now or when the other end reads again; a line that is closed is found out by ``receive``."""
        packet = json.dumps({"event": event, **values}).encode()
        # What is still to be said need not be said twice: an end that is stopped must not fill our memory.
        if packet not in self._unsent:
            self._unsent.append(packet)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._socket.send(self._unsent[0])
                self._unsent.popleft()
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self._unsent.clear()

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the events that are there; None when the other end is closed."""
        self._flush()
        events: list[dict[str, Any]] = []
        while True:
            try:
                packet = self._socket.recv(MAX_PACKET_BYTES)
            except BlockingIOError:
                return events
            except ConnectionResetError:
                packet = b""
            if not packet:
                return events or None
            events.append(json.loads(packet))

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
