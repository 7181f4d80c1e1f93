"""What happens to each request: admission, dispatch, completion, deadlines, deaths. Decides, never does.

Pure: no socket, no clock, no logger; times come in as ns of the monotonic clock, and methods return what the shell must do.
The table it follows is ``life.TRANSITIONS``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.hop import HopKind
from schemas.status import Code

from . import life
from .lanes import Lane
from .leases import LeasePool, no_leases
from .life import Client, Request
from .metrics import Ledger
from .suspects import mark_running_call, why_not_again

_NO_REPLICA = int(HopKind.NO_REPLICA)
# NO_REPLICA answers for one request before it is given up; each wait for a replica counts one.
MAX_NO_REPLICA = 1000


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not taken."""

    code: Code
    retry_after_us: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that ends without a result: answer it with *code*."""

    request: Request
    code: Code
    message: str = ""


class Core:
    """All lanes and clients. Every method is called by the broker's main thread."""

    def __init__(self, lanes: list[Lane], ledger: Ledger, *, max_in_flight: int, leases: LeasePool | None = None) -> None:
        self.lanes = lanes
        self.ledger = ledger
        self.leases = leases or no_leases()
        self.live: set[int] = {0}
        self.draining = False
        self._max_in_flight = max_in_flight
        self._deadlines: list[tuple[int, int, Request]] = []
        self._ticket = 0
        self._live_requests = 0

    # --- coming in -------------------------------------------------------------------------------------------------------

    def admit(self, request: Request) -> Refusal | None:
        """Queue *request*, or say why not. A request that is taken gets its ticket and ends exactly once."""
        lane, client = request.lane, request.client
        if self.draining:
            return Refusal(Code.DRAINING, 1_000_000, "the server is shutting down")
        if lane.unavailable:
            return Refusal(Code.MODEL_UNAVAILABLE, 1_000_000, lane.unavailable)
        if len(client.in_flight) + client.orphans >= self._max_in_flight or not lane.backlog.has_room(request.payload_bytes):
            return self._busy(lane, client, request.payload_bytes)
        self._ticket = ticket = self._ticket + 1
        request.ticket = ticket
        client.in_flight[request.request_id] = request
        lane.backlog.push(request)
        heapq.heappush(self._deadlines, (request.deadline_ns, ticket, request))
        self._live_requests += 1
        self.leases.hold(request)
        return None

    def _busy(self, lane: Lane, client: Client, payload_bytes: int) -> Refusal:
        """Say which limit is reached, and when to come again."""
        if lane.backlog.has_room(payload_bytes):
            reason = f"{len(client.in_flight) + client.orphans} requests of this client are in flight, server.max_in_flight"
        else:
            reason = f"the backlog of lane {lane.plan.name} is full: {lane.backlog.count} requests, {lane.backlog.bytes} bytes"
        return Refusal(Code.BUSY, self._retry_after_us(lane), reason)

    def _retry_after_us(self, lane: Lane) -> int:
        """Return what the backlog is worth, +-25 % so that refused clients do not come back together."""
        self._ticket += 1
        spread = 0.75 + (self._ticket * 2654435761 % 4096) / 8192
        return int(lane.window.backlog_ns(lane.backlog.count + 1) * spread / 1000) or 1

    # --- going to the stages ---------------------------------------------------------------------------------------------

    def next_dispatch(self, lane: Lane, now_ns: int, limit: int) -> list[Request]:
        """Return up to *limit* requests that go to the stages now, each with its slot; those that run again come first."""
        jobs = self._waiting_jobs(lane, now_ns) if lane.waiting else []
        if not lane.replicas[0]:
            return jobs
        slots, backlog = lane.slots, lane.backlog
        room = min(limit - len(jobs), lane.window.size - lane.dispatched, slots.free_count)
        while room > 0 and (request := backlog.pop()) is not None:
            request.step(life.DISPATCH)
            slots.allocate(request)
            request.dispatched_ns = now_ns
            jobs.append(request)
            room -= 1
        return jobs

    def _waiting_jobs(self, lane: Lane, now_ns: int) -> list[Request]:
        jobs: list[Request] = []
        for _ in range(len(lane.waiting)):
            request = lane.waiting.popleft()
            if lane.replicas[lane.process_of(request.stage)]:
                request.step(life.DISPATCH)
                request.dispatched_ns = now_ns
                jobs.append(request)
            else:
                lane.waiting.append(request)
        return jobs

    # --- coming back -----------------------------------------------------------------------------------------------------

    def complete(
        self, lane: Lane, slot: int, life_of: tuple[int, int], *, kind: int, stage: int, code: int
    ) -> Request | Ended | None:
        """Take a hop back; *life_of* is its (generation, ticket).

        Return its request when the shell must answer it now (and then call ``finish``), an Ended to answer, or None.
        """
        request = lane.slots.owner_of(slot, life_of[0])
        if request is None or request.ticket != life_of[1]:
            self.ledger.late_hops += 1
            return None
        if kind == _NO_REPLICA and request.state == life.HELD:
            return self._wait_for_replica(lane, request, stage)
        was_orphan = request.state == life.ORPHAN
        event = life.NO_REPLICA if kind == _NO_REPLICA else life.RETURN_ERROR if code else life.RETURN_OK
        request.step(event)
        lane.slots.take_back(slot)
        if was_orphan:
            self._free_orphan(request)
            return None
        return request

    def finish(self, request: Request) -> None:
        """Free the slot of a request that was answered from it; its reply is a copy by now."""
        request.lane.slots.free(request.slot)
        self._forget(request)

    def _free_orphan(self, request: Request) -> None:
        """Free the slot of a request that was answered before: no stage has it any more."""
        request.client.orphans -= 1
        request.lane.slots.free(request.slot)
        self.leases.release(request)

    def _wait_for_replica(self, lane: Lane, request: Request, stage: int) -> Ended | None:
        request.step(life.NO_REPLICA)
        lane.slots.take_back(request.slot)
        lane.waiting.append(request)
        request.stage = stage
        request.no_replica += 1
        if request.no_replica > MAX_NO_REPLICA:
            return self._end(request, life.DRAIN, Code.STAGE_DIED, "no process served this stage, too often")
        return None

    # --- ending early ----------------------------------------------------------------------------------------------------

    def expired(self, now_ns: int) -> list[Ended]:
        """End the requests whose deadline has passed; what is with the stages becomes an orphan until its hop returns."""
        heap, ended = self._deadlines, []
        while heap and heap[0][0] <= now_ns:
            request = heapq.heappop(heap)[2]
            if request.state in life.LIVE:
                where = "in the backlog" if request.state == life.QUEUED else "with the stages"
                ended.append(self._end(request, life.EXPIRE, Code.DEADLINE_EXCEEDED, f"its budget ran out {where}"))
        if len(heap) > 2 * self._live_requests + 1024:
            self._deadlines = [entry for entry in heap if entry[2].state in life.LIVE]
            heapq.heapify(self._deadlines)
        return ended

    def next_deadline_ns(self) -> int | None:
        """Return the earliest deadline that may still matter; None when nothing waits."""
        return self._deadlines[0][0] if self._deadlines else None

    def cancel(self, client: Client, request_id: int) -> Ended | None:
        """End the one request with exactly this id, if it is in flight."""
        request = client.in_flight.get(request_id)
        return None if request is None else self._end(request, life.CANCEL, Code.CANCELLED, "cancelled by its client")

    def gone(self, client: Client) -> int:
        """Forget a client that cannot be reached; return how many of its requests ended undeliverable.

        A request that is being answered right now is not among them: its fate is counted by the one who sends, who calls
        ``finish`` afterwards.
        """
        requests = [request for request in client.in_flight.values() if request.state in life.LIVE]
        for request in requests:
            self._end(request, life.GONE, Code.NONE)
            self.leases.release(request)
        client.gone = True
        self.ledger.undeliverable += len(requests)
        return len(requests)

    def make_unavailable(self, lane: Lane, reason: str) -> list[Ended]:
        """Answer what waits in a lane that cannot start, and refuse what comes until ``reason`` is taken back."""
        lane.unavailable = reason
        waiting = lane.backlog.waiting() + list(lane.waiting)
        return [self._end(request, life.DRAIN, Code.MODEL_UNAVAILABLE, reason) for request in waiting]

    def refuse_stuck(self) -> list[Ended]:
        """End what came back from the stages of a lane that cannot start: nobody will take it."""
        stuck = [request for lane in self.lanes if lane.unavailable for request in lane.waiting]
        return [self._end(request, life.DRAIN, Code.MODEL_UNAVAILABLE, request.lane.unavailable) for request in stuck]

    def drain_rest(self) -> list[Ended]:
        """End everything that is left when the time to drain is over."""
        rest = [r for lane in self.lanes for r in (*lane.backlog.waiting(), *lane.slots.requests) if r is not None]
        late = "not finished before the server had to stop"
        return [self._end(request, life.DRAIN, Code.DRAINING, late) for request in rest if request.state in life.LIVE]

    def _end(self, request: Request, event: int, code: Code, message: str = "") -> Ended:
        """Take *request* out of wherever it is; a slot that stages may touch stays taken."""
        lane, before = request.lane, request.state
        after = request.step(event)
        if before == life.QUEUED:
            lane.backlog.discard(request)
        elif before == life.WAITING:
            lane.waiting.remove(request)
            lane.slots.free(request.slot)
        if after in (life.ORPHAN, life.CONDEMNED_ORPHAN):
            request.client.orphans += 1
        self._forget(request)
        return Ended(request, code, message)

    def _forget(self, request: Request) -> None:
        del request.client.in_flight[request.request_id]
        request.payload = None
        self._live_requests -= 1

    # --- deaths ----------------------------------------------------------------------------------------------------------

    def reaped(self, incarnation: int, call: tuple[int, int] | None) -> list[Ended]:
        """Take note that *incarnation* was killed and waited for; *call* is (lane, rows) of its running call, or None.

        The shell drained the sink before. Requests in the running call are marked; the rest of its slots count a retry.
        """
        self.live.discard(incarnation)
        for lane in self.lanes:
            lane.drop_replica(incarnation)
        marked: set[Request] = set()
        if call is not None and call[0] < len(self.lanes):
            marked = mark_running_call(self.lanes[call[0]], incarnation, call[1])
        given_up = [e for r in marked if r.state == life.CONDEMNED and (e := self._give_up(r)) is not None]
        return given_up + self.condemn_lost(marked)

    def condemn_lost(self, marked: Iterable[Request] = ()) -> list[Ended]:
        """Condemn every slot whose holder was reaped. Called at each reap and at each tick, after draining the sink."""
        ended: list[Ended] = []
        for lane in self.lanes:
            lost = lane.slots.named_by(self.live) if lane.slots.used_count else []
            if not lost:
                continue
            lane.slots.condemn(lost, self.live)
            for slot in lost:
                request = lane.slots.requests[slot]
                assert request is not None
                request.step(life.REAPED)
                request.retries += request not in marked
                if request.state == life.CONDEMNED and (end := self._give_up(request)) is not None:
                    ended.append(end)
        return ended

    def _give_up(self, request: Request) -> Ended | None:
        """End a condemned request that must not run again; None when it may."""
        reason = why_not_again(request)
        return None if reason is None else self._end(request, life.GIVE_UP, *reason)

    def settle(self) -> None:
        """Give condemned slots that nobody can touch any more to their own requests again, or free them."""
        for lane in self.lanes:
            if not lane.slots.condemned:
                continue
            for request in lane.slots.quiet(self.live):
                if request.step(life.QUIET) == life.WAITING:
                    request.stage = 0
                    lane.waiting.append(request)
                else:
                    self._free_orphan(request)

    @property
    def in_flight(self) -> int:
        """How many accepted requests have no answer yet: counted, not computed."""
        return sum(lane.in_flight for lane in self.lanes)
