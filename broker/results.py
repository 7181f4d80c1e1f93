"""Hops that come back: completes them and answers their requests from the slots. Owner: the broker's main thread."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import zmq

from schemas.arena import LaneArena
from schemas.hop import HOP, Hop, HopKind
from schemas.lease_regions import LeaseRegions
from schemas.leases import IN_LEASE
from schemas.logs import get_logger
from schemas.status import Code, KeyPolicy

from .core import Core
from .endings import Ended
from .front import Front
from .life import Request
from .outbox import Reply
from .replies import LaneReplies

DRAIN_STEP = 256
_READY = int(HopKind.READY)
_ORDERED = int(KeyPolicy.ORDERED)


class Results:
    """Reads the sink.

    Args:
        sink: the PULL to which workers send.
        front: where the clients are.
        regions: what is lent to clients, None where nothing is.
        on_ready: called with the incarnation of a process that says that it is warm.
    """

    def __init__(
        self,
        sink: zmq.Socket[bytes],
        core: Core,
        arenas: list[LaneArena],
        front: Front,
        *,
        regions: LeaseRegions | None = None,
        on_ready: Callable[[int], None],
    ) -> None:
        self._lease_regions = regions
        self._recv = sink.recv
        self._core = core
        self._arenas = arenas
        self._released = core.endings.released
        self._front = front
        self._on_ready = on_ready
        self._replies = [LaneReplies(lane, arena, core.leases, regions) for lane, arena in zip(core.lanes, arenas, strict=True)]

    def drain(self, limit: int) -> int:
        """Take up to *limit* messages that lie in the sink; return how many."""
        recv = self._recv
        count = 0
        try:
            while count < limit:
                message = recv(zmq.NOBLOCK)
                count += 1
                self._take(list(HOP.iter_unpack(message)))
        except zmq.Again:
            pass
        self._front.outbox.flush()
        return count

    def drain_all(self) -> None:
        """Take everything that lies in the sink."""
        while self.drain(DRAIN_STEP):
            pass

    def _take(self, hops: list[Hop]) -> None:
        """Complete the hops of one message: they are of one lane, or one says that a process is ready."""
        if hops[0][4] == _READY:
            self._on_ready(hops[0][2])
            return
        lane, complete = self._core.lanes[hops[0][3]], self._core.complete
        done: list[tuple[Request, int, int]] = []
        for slot, generation, ticket, _, kind, stage, code, _, _ in hops:
            request = complete(lane, slot, (generation, ticket), kind=kind, stage=stage, code=code)
            if isinstance(request, Ended):
                self.answer(request)
            elif request is not None:
                done.append((request, code, stage))
        if done:
            self._answer_done(done, self._replies[lane.index])

    def _answer_done(self, done: list[tuple[Request, int, int]], replies: LaneReplies) -> None:
        """Answer requests from their slots, then free these; (request, code, stage) each."""
        put, finish = self._front.outbox.put, self._core.finish
        good = [request for request, code, _ in done if not code]
        if good:
            # One sample a message is enough for the window: those of a message mostly ran in one batch.
            for step, run_ns, batch in replies.runs(good[0].slot):
                good[0].lane.window.observe(step, run_ns, batch)
            for request, (header, frames) in zip(good, replies.results(good), strict=True):
                if frames and request.policy == _ORDERED:
                    # One with frames is sent at once: not before what is held back for the end of the turn.
                    self._front.outbox.end_turn()
                put(request.client, Reply(header, frames, 0))
        for request, code, stage in done:
            if code:
                self._answer_failed(request, replies, code, stage)
            finish(request)
        if self._released:
            self.answer_released()

    def answer_released(self) -> None:
        """Answer from their slots the requests whose elders have ended; those have their answers by now."""
        while self._released:
            one = self._released.popleft()
            self._answer_done([(one.request, one.code, one.stage)], self._replies[one.request.lane.index])

    def _answer_failed(self, request: Request, replies: LaneReplies, code: int, stage: int) -> None:
        late = ("", "its budget ran out with the stages")
        field, message = replies.error(request.slot) if code != Code.DEADLINE_EXCEEDED else late
        self._front.answer_error(request, Code(code), message, stage=replies.stage_name(stage), field=field)

    def answer(self, ended: Ended) -> None:
        """Answer a request that ended without a result; one that kills gets the digest of its input, to be found again."""
        message = ended.message
        if ended.code == Code.QUARANTINED:
            lane, request = ended.request.lane, ended.request
            message += f"; input blake2b-64 {self._digest(request)}"
            get_logger().error("quarantined", lane=lane.plan.name, client=request.client.name, message=message)
        self._front.answer_ended(ended, message)

    def _digest(self, request: Request) -> str:
        """Return a digest of what lies in a request's slot, and in the leased frames that its descriptors name."""
        lane, slot = request.lane, request.slot
        arena = self._arenas[lane.index]
        made = hashlib.blake2b(arena.regions[lane.plan.links[0].region][slot, : request.payload_bytes].data, digest_size=8)
        if self._lease_regions is not None:
            for _, _, nbytes, word in arena.descriptors[0, slot, :, :4].tolist():
                if word & IN_LEASE:
                    made.update(self._lease_regions.view(word, nbytes).data)
        return made.hexdigest()
