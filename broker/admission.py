"""The backlog of one lane: who waits for a slot and in which order. Pure; owner: the broker's main thread.

One discipline: strict priority levels; inside a level deficit round robin over clients, in rows, where all connections with the
same key are one client; inside a client the earliest deadline first, then arrival. Nothing starves inside a level.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from .life import QUEUED, Request

# Where ``Route.priority`` 0 stands among 1 (highest) to 255.
DEFAULT_LEVEL = 8
# Dead entries (expired, cancelled) are skipped when met, and swept when they are more than the live ones and this many.
SWEEP_ABOVE = 64


@dataclass(slots=True, eq=False)
class _Waiting:
    """One client's requests in one level: a heap by (deadline, ticket)."""

    client: bytes
    heap: list[tuple[int, int, Request]] = field(default_factory=list)
    deficit_rows: int = 0


@dataclass(slots=True, eq=False)
class _Level:
    """One priority level: the clients that have something waiting, in turn."""

    ring: deque[_Waiting] = field(default_factory=deque)
    by_client: dict[bytes, _Waiting] = field(default_factory=dict)


class Backlog:
    """Requests that wait for a slot, bounded by count and by bytes.

    Args:
        max_requests: more are refused with BUSY.
        max_bytes: the same for the bytes of their payloads.
        quantum_rows: rows that a client may send in its turn; the largest request must fit.
    """

    def __init__(self, *, max_requests: int, max_bytes: int, quantum_rows: int) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._quantum_rows = quantum_rows
        self._levels: dict[int, _Level] = {}
        self._order: list[int] = []
        self._entries = 0
        self._parked: set[Request] = set()
        self.count = 0
        self.bytes = 0

    def has_room(self, payload_bytes: int, requests: int = 1) -> bool:
        """True when so many more *requests*, *payload_bytes* together, are within both bounds."""
        return self.count + requests <= self._max_requests and self.bytes + payload_bytes <= self._max_bytes

    def push(self, request: Request, at_level: int = 0, deadline_ns: int = 0) -> None:
        """Take a request in; the caller asked ``has_room`` before.

        Args:
            at_level: where it stands, 0 = where its priority says.
            deadline_ns: by which it is ordered inside its client, 0 = its own.
        """
        number = at_level or request.priority or DEFAULT_LEVEL
        level = self._levels.get(number)
        if level is None:
            level = self._levels[number] = _Level()
            self._order = sorted(self._levels)
        client = request.client.fair
        waiting = level.by_client.get(client)
        if waiting is None:
            # With its quantum at once: who sends now and then must not wait a whole round longer than who always has more.
            waiting = level.by_client[client] = _Waiting(client, deficit_rows=self._quantum_rows)
            level.ring.append(waiting)
        heapq.heappush(waiting.heap, (deadline_ns or request.deadline_ns, request.ticket, request))
        self._entries += 1
        self.count += 1
        self.bytes += request.payload_bytes

    def park(self, request: Request) -> None:
        """Take a request in that is not given out before ``unpark``."""
        self._parked.add(request)
        self.count += 1
        self.bytes += request.payload_bytes

    def unpark(self, request: Request) -> None:
        """Let a parked request have its turn from now on."""
        self._parked.remove(request)
        self._forget(request)
        self.push(request)

    def is_parked(self, request: Request) -> bool:
        """Return whether *request* waits here without a turn."""
        return request in self._parked

    def pop(self) -> Request | None:
        """Take out the request whose turn it is; None when nothing waits."""
        if not self.count:
            return None
        for number in self._order:
            request = self._pop_level(self._levels[number])
            if request is not None:
                self._forget(request)
                return request
        return None

    def discard(self, request: Request) -> None:
        """Count out a request that ended while it waited; its entry is skipped later, or swept."""
        self._forget(request)
        if request in self._parked:
            self._parked.remove(request)
        elif self._entries > 2 * self.count + SWEEP_ABOVE:
            self._sweep()

    def waiting(self) -> list[Request]:
        """Return all that wait, in no order."""
        heaps = [waiting.heap for level in self._levels.values() for waiting in level.ring]
        return [*self._parked, *(request for heap in heaps for (_, _, request) in heap if request.state == QUEUED)]

    def _forget(self, request: Request) -> None:
        self.count -= 1
        self.bytes -= request.payload_bytes

    def _pop_level(self, level: _Level) -> Request | None:
        """Deficit round robin: serve the client in front until its rows are used up, then the next."""
        while level.ring:
            waiting = level.ring[0]
            request = self._front(waiting)
            if request is None:
                level.ring.popleft()
                del level.by_client[waiting.client]
            elif len(level.ring) == 1 or waiting.deficit_rows >= request.rows:
                waiting.deficit_rows = max(0, waiting.deficit_rows - request.rows)
                heapq.heappop(waiting.heap)
                self._entries -= 1
                return request
            else:
                waiting.deficit_rows += self._quantum_rows
                level.ring.rotate(-1)
        return None

    def _front(self, waiting: _Waiting) -> Request | None:
        heap = waiting.heap
        while heap:
            request = heap[0][2]
            if request.state == QUEUED:
                return request
            heapq.heappop(heap)
            self._entries -= 1
        return None

    def _sweep(self) -> None:
        """Drop dead entries, and clients without others, so that a stuck lane whose clients cancel does not grow."""
        for level in self._levels.values():
            for waiting in level.ring:
                waiting.heap = [entry for entry in waiting.heap if entry[2].state == QUEUED]
                heapq.heapify(waiting.heap)
            level.ring = deque(waiting for waiting in level.ring if waiting.heap)
            level.by_client = {waiting.client: waiting for waiting in level.ring}
        self._entries = self.count - len(self._parked)
