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
from typing import Any

# One packet is one small object; the kernel keeps their bounds.
MAX_PACKET_BYTES = 65_536


class Channel:
    """One end of the line; ``receive`` never waits."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, for polling."""
        return self._socket.fileno()

    def send(self, event: str, **values: int | str) -> None:
        """Send one event; a line that is closed is found out by ``receive``."""
        try:
            self._socket.send(json.dumps({"event": event, **values}).encode())
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive(self) -> list[dict[str, Any]] | None:
        """Return the events that are there; None when the other end is closed."""
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
