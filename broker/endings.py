"""How requests end: answered, late, cancelled, superseded, or with their client gone; and what their end sets free. Pure.

Owner: the broker's main thread. The table it follows is ``life.TRANSITIONS``; ``core.py`` decides about everything before.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from operator import attrgetter

from schemas.status import Code

from . import life
from .leases import LeasePool
from .life import Client, Request
from .metrics import Ledger

_arrival = attrgetter("ticket")


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that ends without a result: answer it with *code*."""

    request: Request
    code: Code
    message: str = ""
    field: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """A request whose hop came back before its elder's, and whose turn it is now: answer it from its slot, then ``finish`` it."""

    request: Request
    code: int
    stage: int


class Endings:
    """The accepted requests that have not ended, by deadline.

    Attributes:
        early: what ended beside the matter in hand, such as the superseded: to be answered in the same turn, ``take_early``.
        released: kept answers that may leave: to be sent behind what is being answered.
    """

    def __init__(self, ledger: Ledger, leases: LeasePool) -> None:
        self._leases = leases
        self.early: list[Ended] = []
        self.released: deque[Released] = deque()
        self._ledger = ledger
        self._deadlines: list[tuple[int, int, Request]] = []
        self._live = 0

    def add(self, request: Request) -> None:
        """Take in a request that was accepted; it ends exactly once."""
        heapq.heappush(self._deadlines, (request.deadline_ns, request.ticket, request))
        self._live += 1

    def finish(self, request: Request) -> None:
        """Free the slot of a request that was answered from it; its reply is a copy by now."""
        self._free(request)
        self._forget(request)

    def free_orphan(self, request: Request) -> None:
        """Free the slot of a request that was answered before."""
        request.client.orphans -= 1
        self._free(request)
        self._leases.release(request)

    def _free(self, request: Request) -> None:
        request.lane.slots.free(request.slot)
        if request.line is not None:
            request.line.freed(request.lane.backlog)

    def drop(self, request: Request, message: str, field: str = "") -> None:
        """End with DEADLINE_EXCEEDED a request that was just taken out of the backlog; it is answered in this turn."""
        request.step(life.EXPIRE)
        if request.line is not None:
            request.line.left_backlog(request, request.lane.backlog)
        self._forget(request)
        self.early.append(Ended(request, Code.DEADLINE_EXCEEDED, message, field))

    def end(self, request: Request, event: int, code: Code, message: str = "", field: str = "") -> Ended:
        """Take *request* out of wherever it is; a slot that stages may touch stays taken."""
        lane, before = request.lane, request.state
        after = request.step(event)
        if before == life.QUEUED:
            if request.line is not None:
                request.line.left_backlog(request, lane.backlog)
            lane.backlog.discard(request)
        elif before == life.WAITING:
            lane.waiting.remove(request)
            self._free(request)
        elif before == life.KEPT:
            lane.kept -= 1
            self._free(request)
        if after in (life.ORPHAN, life.CONDEMNED_ORPHAN):
            request.client.orphans += 1
        self._forget(request)
        return Ended(request, code, message, field)

    def _forget(self, request: Request) -> None:
        del request.client.in_flight[request.request_id]
        request.payload = None
        self._live -= 1
        if request.line is not None:
            self._release(request)

    def _release(self, ended: Request) -> None:
        """Let those leave that were kept for an elder that has ended; their slots are free when they are sent."""
        for request, (code, stage) in ended.line.leave(ended) if ended.line is not None else ():
            request.step(life.RELEASE)
            request.lane.kept -= 1
            self.released.append(Released(request, code, stage))

    def expired(self, now_ns: int) -> list[Ended]:
        """End the requests whose deadline has passed; what is with the stages becomes an orphan until its hop returns."""
        heap, late = self._deadlines, []
        while heap and heap[0][0] <= now_ns:
            late.append(heapq.heappop(heap)[2])
        # The youngest first, so that an elder of an Ordered key releases none that is late as well.
        late.sort(key=_arrival, reverse=True)
        ended = [self._expire(request) for request in late if request.state in life.LIVE]
        if len(heap) > 2 * self._live + 1024:
            self._deadlines = [entry for entry in heap if entry[2].state in life.LIVE]
            heapq.heapify(self._deadlines)
        return ended[::-1]

    def _expire(self, request: Request) -> Ended:
        where = "in the backlog" if request.state == life.QUEUED else "with the stages"
        return self.end(request, life.EXPIRE, Code.DEADLINE_EXCEEDED, f"its budget ran out {where}")

    def take_early(self) -> list[Ended]:
        """Return what ``admit`` and ``next_dispatch`` ended beside their own business; it is to be answered now."""
        early, self.early = self.early, []
        return early

    def next_deadline_ns(self) -> int | None:
        """Return the earliest deadline that may still matter; None when nothing waits."""
        return self._deadlines[0][0] if self._deadlines else None

    def cancel(self, client: Client, request_id: int) -> Ended | None:
        """End the one request with exactly this id, if it is in flight."""
        request = client.in_flight.get(request_id)
        return None if request is None else self.end(request, life.CANCEL, Code.CANCELLED, "cancelled by its client")

    def gone(self, client: Client) -> int:
        """Forget a client that cannot be reached; return how many of its requests ended undeliverable.

        A request that is being answered right now is not among them: its fate is counted by the one who sends, who calls
        ``finish`` afterwards.
        """
        # The youngest first, so that none is released to a client that is gone.
        requests = [request for request in reversed(client.in_flight.values()) if request.state in life.LIVE]
        for request in requests:
            self.end(request, life.GONE, Code.NONE)
            self._leases.release(request)
        client.gone = True
        self._ledger.undeliverable += len(requests)
        return len(requests)
