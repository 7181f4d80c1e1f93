"""Many requests of one kind: packed where they are small, paced so that the server's backlog takes them, results in order.

Pure like the session: what starts, sends and waits for requests is given to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schemas.wire import MAX_PACKED

from .calls import Pending, Result
from .errors import SlotlineError
from .session import Outgoing

# Kept in flight: four packed messages, and no more than a lane's backlog takes by default.
MAX_IN_FLIGHT = 256
# Their bytes: bounds what images take in the server's backlog.
MAX_BYTES = 16 << 20


class Many:
    """The requests of one ``infer_many``.

    Args:
        start: starts one request, or raises SlotlineError.
        send: sends requests as one message, Packed when they are several.
        max_in_flight: the server's limit for this client, 0 = none.
        max_bytes: its limit for one message, 0 = none.
    """

    def __init__(
        self,
        *,
        start: Callable[[Mapping[str, Any]], Outgoing],
        send: Callable[[Sequence[Outgoing]], None],
        max_in_flight: int,
        max_bytes: int,
    ) -> None:
        self._start = start
        self._send = send
        self._max_in_flight = min(MAX_IN_FLIGHT, max_in_flight or MAX_IN_FLIGHT)
        self._max_message_bytes = max_bytes or MAX_BYTES
        self._entries: list[Pending[Result] | SlotlineError] = []
        self._pack: list[Outgoing] = []
        self._pack_bytes = 0
        self._in_flight: deque[tuple[Pending[Result], int]] = deque()
        self._bytes_in_flight = 0

    def add(self, inputs: Mapping[str, Any]) -> None:
        """Start one request, after waiting for room."""
        for call in self.crowd():
            _outcome(call)
        try:
            outgoing = self._start(inputs)
        except SlotlineError as error:
            self._entries.append(error)
            return
        self._entries.append(outgoing.call)
        size = len(outgoing.header) + sum(map(len, outgoing.frames))
        self._in_flight.append((outgoing.call, size))
        self._bytes_in_flight += size
        if outgoing.frames:
            self._send([outgoing])
            return
        if len(self._pack) >= MAX_PACKED or self._pack_bytes + size > self._max_message_bytes:
            self.flush()
        self._pack.append(outgoing)
        self._pack_bytes += size

    def finish(self) -> list[Result | SlotlineError]:
        """Wait for all, and return what became of each, in order."""
        self.flush()
        return [_outcome(entry) for entry in self._entries]

    def crowd(self) -> list[Pending[Result]]:
        """Return the calls that must end before another may start: none while there is room."""
        if len(self._in_flight) < self._max_in_flight and self._bytes_in_flight < MAX_BYTES:
            return []
        self.flush()
        # As many as a pack takes, so that the next packs are full.
        oldest = [self._in_flight.popleft() for _ in range(min(MAX_PACKED, len(self._in_flight)))]
        self._bytes_in_flight -= sum(size for _, size in oldest)
        return [call for call, _ in oldest]

    def calls(self) -> list[Pending[Result]]:
        """Return every call that was started, in order."""
        return [entry for entry in self._entries if isinstance(entry, Pending)]

    def flush(self) -> None:
        """Send what waits for its pack to be full."""
        # Not what a lost connection has ended meanwhile: its caller was told that it may have to be sent again.
        pack = [outgoing for outgoing in self._pack if outgoing.call.outcome is None]
        self._pack, self._pack_bytes = [], 0
        if pack:
            self._send(pack)


def _outcome(entry: Pending[Result] | SlotlineError) -> Result | SlotlineError:
    """Return what became of a request, waiting for it."""
    if isinstance(entry, SlotlineError):
        return entry
    try:
        return entry.result()
    except SlotlineError as error:
        return error
