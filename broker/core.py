"""What happens to each request: admission, dispatch, completion, deadlines, deaths. Decides, never does.

Pure: no socket, no clock, no logger; times come in as ns of the monotonic clock, and methods return what the shell must do.
The table it follows is ``life.TRANSITIONS``.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.hop import HopKind
from schemas.status import Code, KeyPolicy

from . import life
from .endings import Ended, Endings
from .lanes import Lane
from .leases import LeasePool, no_leases
from .life import Request
from .metrics import Ledger
from .refusals import Refusal, busy, too_short
from .suspects import mark_running_call, why_not_again

_NO_REPLICA = int(HopKind.NO_REPLICA)
_ORDERED = int(KeyPolicy.ORDERED)
# NO_REPLICA answers for one request before it is given up; each wait for a replica counts one.
MAX_NO_REPLICA = 1000
_ENDED_BY_DRAIN = life.LIVE - {life.KEPT}


class Core:
    """All lanes and clients. Every method is called by the broker's main thread.

    Attributes:
        endings: how requests end; what is called for each request or turn is at hand here too.
    """

    def __init__(self, lanes: list[Lane], ledger: Ledger, *, max_in_flight: int, leases: LeasePool | None = None) -> None:
        self.lanes = lanes
        self.ledger = ledger
        self.leases = leases or no_leases()
        self.live: set[int] = {0}
        self.draining = False
        self._max_in_flight = max_in_flight
        self._ticket = 0
        self.endings = Endings(ledger, self.leases)
        self.finish = self.endings.finish
        self.expired = self.endings.expired
        self.next_deadline_ns = self.endings.next_deadline_ns
        self.cancel = self.endings.cancel
        self.gone = self.endings.gone
        self._end = self.endings.end

    # --- coming in -------------------------------------------------------------------------------------------------------

    def admit(self, request: Request) -> Refusal | None:
        """Queue *request*, or say why not. A request that is taken gets its ticket and ends exactly once."""
        lane, client = request.lane, request.client
        if self.draining:
            return Refusal(Code.DRAINING, 1_000_000, "the server is shutting down")
        if lane.unavailable:
            return Refusal(Code.MODEL_UNAVAILABLE, 1_000_000, lane.unavailable)
        if request.deadline_ns - request.arrived_ns < lane.window.path_ns and not lane.probes.lets(request):
            return Refusal(Code.DEADLINE_EXCEEDED, 0, too_short(request, request.arrived_ns))
        if request.policy > _ORDERED:
            self._supersede(request)
        if len(client.in_flight) + client.orphans >= self._max_in_flight or not lane.backlog.has_room(request.payload_bytes):
            self._ticket += 1
            return busy(lane, client, request.payload_bytes, self._ticket)
        self._ticket += 1
        request.ticket = self._ticket
        client.in_flight[request.request_id] = request
        if request.policy:
            lane.lines.push(request)
        else:
            lane.backlog.push(request)
        self.endings.add(request)
        self.leases.hold(request)
        return None

    def _supersede(self, request: Request) -> None:
        """End the waiting requests of its key that *request* takes the place of, if it can be taken then."""
        lane, client = request.lane, request.client
        older = lane.lines.superseded_by(request)
        freed_bytes = sum(one.payload_bytes for one in older)
        own = sum(one.client is client for one in older)
        is_within_share = len(client.in_flight) + client.orphans - own < self._max_in_flight
        if is_within_share and lane.backlog.has_room(request.payload_bytes - freed_bytes, 1 - len(older)):
            reason = f"a newer request of key {request.key} took its place"
            self.endings.early += [self._end(one, life.SUPERSEDE, Code.SUPERSEDED, reason) for one in older]

    # --- going to the stages ---------------------------------------------------------------------------------------------

    def next_dispatch(self, lane: Lane, now_ns: int, limit: int) -> list[Request]:
        """Return up to *limit* requests that go to the stages now, each with its slot; those that run again come first."""
        jobs = self._waiting_jobs(lane, now_ns) if lane.waiting else []
        if not lane.replicas[0]:
            return jobs
        slots, backlog = lane.slots, lane.backlog
        room = min(limit - len(jobs), lane.window.size - lane.dispatched, slots.free_count)
        soonest_ns, max_age_ns = now_ns + lane.window.path_ns, lane.plan.max_age_ns
        while room > 0 and (request := backlog.pop()) is not None:
            if (request.deadline_ns < soonest_ns or max_age_ns) and self._comes_too_late(request, now_ns):
                continue
            request.step(life.DISPATCH)
            slots.allocate(request)
            request.dispatched_ns = now_ns
            if request.line is not None:
                request.line.dispatched(request)
            jobs.append(request)
            room -= 1
        return jobs

    def _comes_too_late(self, request: Request, now_ns: int) -> bool:
        """End *request*, just taken from the backlog, when it is too old or cannot be finished in time; say whether it ended."""
        lane = request.lane
        age_ns = now_ns - request.born_us * 1000 if request.born_us else 0
        if 0 < lane.plan.max_age_ns < age_ns:
            limit_us = lane.plan.max_age_ns // 1000
            reason = f"{age_ns // 1000} us old, lane.{lane.plan.name}.max_age_us is {limit_us}"
            self.endings.drop(request, reason, "born_us")
        elif request.deadline_ns <= now_ns:
            self.endings.drop(request, "its budget ran out in the backlog")
        elif request.deadline_ns - now_ns < lane.window.path_ns and not lane.probes.lets(request):
            self.endings.drop(request, too_short(request, now_ns))
        else:
            return False
        return True

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
        if request.line is not None and not was_orphan and request.line.keeps(request, (code, stage)):
            request.step(life.KEEP)
            lane.slots.take_back(slot)
            lane.kept += 1
            return None
        event = life.NO_REPLICA if kind == _NO_REPLICA else life.RETURN_ERROR if code else life.RETURN_OK
        request.step(event)
        lane.slots.take_back(slot)
        if was_orphan:
            self.endings.free_orphan(request)
            return None
        return request

    def _wait_for_replica(self, lane: Lane, request: Request, stage: int) -> Ended | None:
        request.step(life.NO_REPLICA)
        lane.slots.take_back(request.slot)
        lane.waiting.append(request)
        request.stage = stage
        request.no_replica += 1
        if request.no_replica > MAX_NO_REPLICA:
            return self._end(request, life.DRAIN, Code.STAGE_DIED, "no process served this stage, too often")
        return None

    # --- lanes and the server that end -----------------------------------------------------------------------------------------

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
        """End everything that is left when the time to drain is over; kept answers leave when the last elder has ended."""
        rest = [r for lane in self.lanes for r in (*lane.backlog.waiting(), *lane.slots.requests) if r is not None]
        late = "not finished before the server had to stop"
        return [self._end(request, life.DRAIN, Code.DRAINING, late) for request in rest if request.state in _ENDED_BY_DRAIN]

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
                    self.endings.free_orphan(request)

    @property
    def in_flight(self) -> int:
        """How many accepted requests have no answer yet: counted, not computed."""
        return sum(lane.in_flight for lane in self.lanes)
