"""One lane's part in one process: takes hops, runs the steps, gives finished hops back. No socket; the clock is handed in.

The worker process and the embedded pipeline run this same object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from schemas.arena import LaneArena
from schemas.hop import LONE, Hop, HopKind
from schemas.plan import ERROR_TEXT_BYTES, MIN_HANG_NS, LanePlan, LaneProcess
from schemas.status import Code, RequestError

from .batcher import Batch, Batcher
from .call_marks import CallMarks
from .links import Link, ScratchLink
from .stamps import Stamps
from .steps import Infer, RowStep, Shapes

# A call hangs at MIN_HANG_NS, or at so many times the slowest warm-up run, whichever is longer.
HANG_FACTOR = 10
# How long a worker sleeps before it looks again for a batch that is on a device; a batch takes some hundred microseconds there.
POLL_NS = 50_000

_WORK, _DONE = int(HopKind.WORK), int(HopKind.DONE)


class LaneRunner:
    """Runs steps first_step..end_step of one lane on the slots whose hops it was given.

    Args:
        plan: the lane.
        part: which steps this process runs.
        steps: the object of each step of the lane, None where there is nothing to do or another process does it.
        links: the lane's links as this process sees them.
        arena: for stamps and error texts.
        marks: where running calls are marked; it also has the clock.
    """

    def __init__(
        self,
        plan: LanePlan,
        part: LaneProcess,
        steps: Sequence[RowStep | Infer | None],
        links: Sequence[Link],
        arena: LaneArena,
        marks: CallMarks,
    ) -> None:
        self._plan = plan
        self._end_step = part.end_step
        self._is_last = part.end_step == len(plan.steps)
        mine = [(i, step) for i, step in enumerate(steps) if step is not None]
        infer_at = next((i for i, step in mine if isinstance(step, Infer)), len(steps))
        self._before = [(i, step) for i, step in mine if i < infer_at and not isinstance(step, Infer)]
        self._after = [(i, step) for i, step in mine if i > infer_at and not isinstance(step, Infer)]
        self._infer = next((step for _, step in mine if isinstance(step, Infer)), None)
        self._infer_at = infer_at
        self._scratch = [link for link in links if isinstance(link, ScratchLink)]
        self._stamps = Stamps(arena.stamps)
        self._error = arena.error
        self._marks = marks
        self._hang_ns = max(MIN_HANG_NS, plan.hang_limit_ns)
        self._run_hang_ns = self._hang_ns
        self._incoming: deque[Hop] = deque()
        self._batcher: Batcher[Hop] = Batcher(max(plan.max_batch_size, plan.max_rows), plan.max_queue_delay_ns)
        self._again: deque[Batch[Hop]] = deque()
        # What is on its way through the device, with the time when its call began.
        self._air: deque[tuple[Batch[Hop], int]] = deque()
        self._at_step = part.first_step
        self.finished: list[Hop] = []

    def warmed_up(self, slowest_run_ns: int) -> None:
        """Take the slowest warm-up run as the measure of what hangs."""
        self._run_hang_ns = max(self._hang_ns, HANG_FACTOR * slowest_run_ns)

    @property
    def has_incoming(self) -> bool:
        """True while hops wait that no step has seen."""
        return bool(self._incoming)

    @property
    def is_flying(self) -> bool:
        """True while a batch is on its way through the device."""
        return bool(self._air)

    def next_wake_ns(self) -> int | None:
        """Return when there is something to do if nothing more comes: a batch must go, or may have landed; None for never."""
        if self._infer is None:
            return None
        wake_ns = None
        if self._infer.engine.has_room:
            wake_ns = 0 if self._again else self._batcher.next_wake_ns()
        if self._air:
            look_ns = self._marks.now_ns() + POLL_NS
            wake_ns = look_ns if wake_ns is None else min(wake_ns, look_ns)
        return wake_ns

    def add(self, hops: Sequence[Hop]) -> None:
        """Take hops whose slots this process holds."""
        self._incoming.extend(hops)

    def work(self, now_ns: int, flush: Callable[[int], None]) -> None:
        """Do one batch's worth of what waits; call ``flush(now_ns)`` after each piece, so that what is finished can leave."""
        if self._incoming:
            self._prepare(now_ns, flush)
        infer = self._infer
        if infer is None:
            return
        if infer.engine.has_room and (batch := self._next_batch(now_ns)) is not None:
            self._run_batch(infer, batch)
        while self._air and infer.engine.has_landed:
            self._land(infer, flush)

    def wait(self, flush: Callable[[int], None]) -> None:
        """Sleep until the batch that was launched first has landed, and hand it on; one must be on its way."""
        assert self._infer is not None
        self._infer.engine.wait()
        self._land(self._infer, flush)

    # --- before the model ------------------------------------------------------------------------------------------------

    def _prepare(self, now_ns: int, flush: Callable[[int], None]) -> None:
        """Run the steps before the model on as many requests as one batch takes."""
        count = min(len(self._incoming), self._plan.max_batch_size)
        hops = [self._incoming.popleft() for _ in range(count)]
        if not self._before and self._infer is not None and self._infer.static_key is not None:
            self._add_static(self._infer.static_key, hops, now_ns)
            return
        if not self._before and self._infer is None:
            self._pass_on(hops, now_ns)
            return
        for hop in hops:
            now_ns = self._prepare_one(hop, now_ns)
            flush(now_ns)

    def _pass_on(self, hops: list[Hop], now_ns: int) -> None:
        """Give back hops of a process that has nothing to do for this lane."""
        late = [hop for hop in hops if hop[8] <= now_ns]
        for hop in late:
            self._finish(hop, Code.DEADLINE_EXCEEDED)
        self._finish_all([hop for hop in hops if hop[8] > now_ns] if late else hops)

    def _add_static(self, key: Shapes, hops: list[Hop], now_ns: int) -> None:
        """The short way of lanes with one shape and nothing to do before the model: no Python work per request."""
        lone = [hop for hop in hops if hop[7] & LONE]
        if lone:
            hops = [hop for hop in hops if not hop[7] & LONE]
            for hop in lone:
                self._batcher.add((hop[2], key), hop, rows=1, now_ns=now_ns, deadline_ns=hop[8])
        self._batcher.add_many((0, key), hops, rows=(1,) * len(hops), now_ns=now_ns, deadlines_ns=[hop[8] for hop in hops])

    def _prepare_one(self, hop: Hop, now_ns: int) -> int:
        """Run one request up to the model, and hand it to the batcher or out; return the time."""
        if hop[8] <= now_ns:
            self._finish(hop, Code.DEADLINE_EXCEEDED)
            return now_ns
        try:
            now_ns = self._run_steps(self._before, hop, now_ns)
            if self._infer is None:
                self._finish(hop, Code.NONE)
            else:
                self._at_step = self._infer_at
                shapes, rows = self._infer.shape_of(hop[0])
                if rows > self._plan.max_rows:
                    field = f"lane.{self._plan.name}.max_rows"
                    raise RequestError(Code.BAD_SHAPE, field=field, expected=f"at most {self._plan.max_rows} rows", got=rows)
                lone = hop[2] if hop[7] & LONE else 0
                self._batcher.add((lone, shapes), hop, rows=rows, now_ns=now_ns, deadline_ns=hop[8])
        except RequestError as error:
            self._marks.leave()
            self._fail(hop, error)
        return now_ns

    def _run_steps(self, steps: Sequence[tuple[int, RowStep]], hop: Hop, now_ns: int) -> int:
        slot = hop[0]
        for index, step in steps:
            self._at_step = index
            began = self._marks.enter((hop,), self._hang_ns)
            step.run(slot)
            now_ns = self._marks.leave()
            self._stamps.note((slot,), index, (began, now_ns, 1))
        return now_ns

    # --- the model and after ---------------------------------------------------------------------------------------------

    def _next_batch(self, now_ns: int) -> Batch[Hop] | None:
        """Return what is to run now: first what must run again alone."""
        return self._again.popleft() if self._again else self._batcher.take(now_ns)

    def _run_batch(self, infer: Infer, batch: Batch[Hop]) -> None:
        """Launch one batch, without what is too late by now."""
        batch = self._in_time(batch)
        if not batch.items:
            return
        shapes: Shapes = batch.key[1]  # type: ignore[index]
        self._marks.closed(batch.cause, sum(batch.rows))
        try:
            began_ns = self._marks.enter(batch.items, self._run_hang_ns)
            infer.launch([hop[0] for hop in batch.items], batch.rows, shapes)
        except RequestError as error:
            self._marks.leave()
            self._fail_batch(batch, error)
        else:
            self._air.append((batch, began_ns))
            self._note_air()

    def _land(self, infer: Infer, flush: Callable[[int], None]) -> None:
        """Hand on the batch that was launched first, which has landed."""
        batch, began_ns = self._air.popleft()
        self._note_air()
        try:
            errors = infer.land()
        except RequestError as error:
            self._marks.leave()
            self._fail_batch(batch, error)
        else:
            now_ns = self._marks.leave()
            self._stamps.note([hop[0] for hop in batch.items], self._infer_at, (began_ns, now_ns, sum(batch.rows)))
            self._hand_on(batch.items, errors, now_ns, flush)

    def _note_air(self) -> None:
        """Tell the marks what is on its way."""
        air = self._air
        hops = [hop for batch, _ in air for hop in batch.items] if len(air) > 1 else air[0][0].items if air else []
        self._marks.on_device(hops, self._run_hang_ns)

    def _fail_batch(self, batch: Batch[Hop], error: RequestError) -> None:
        """Take note of a batch that failed as a whole: one request has the error, several run once more, each alone."""
        self._at_step = self._infer_at
        if len(batch.items) == 1:
            self._fail(batch.items[0], error)
            return
        for hop, rows in zip(batch.items, batch.rows, strict=True):
            self._again.append(Batch(batch.key, [hop], [rows], batch.oldest_ns, "alone"))

    def _in_time(self, batch: Batch[Hop]) -> Batch[Hop]:
        """Answer what is too late by now; return the rest."""
        now_ns = self._marks.now_ns()
        late = [hop for hop in batch.items if hop[8] <= now_ns]
        if not late:
            return batch
        for hop in late:
            self._finish(hop, Code.DEADLINE_EXCEEDED)
        rest = [(hop, rows) for hop, rows in zip(batch.items, batch.rows, strict=True) if hop[8] > now_ns]
        return Batch(batch.key, [hop for hop, _ in rest], [rows for _, rows in rest], batch.oldest_ns, batch.cause)

    def _hand_on(self, hops: list[Hop], errors: Sequence[RequestError | None], now_ns: int, flush: Callable[[int], None]) -> None:
        if not self._after and not any(errors):
            self._finish_all(hops)
            flush(now_ns)
            return
        for hop, error in zip(hops, errors, strict=True):
            try:
                self._at_step = self._infer_at
                if error is not None:
                    raise error
                now_ns = self._run_steps(self._after, hop, now_ns)
                self._finish(hop, Code.NONE)
            except RequestError as failure:
                self._marks.leave()
                self._fail(hop, failure)
            flush(now_ns)

    # --- going out -------------------------------------------------------------------------------------------------------

    def _finish_all(self, hops: list[Hop]) -> None:
        kind = _DONE if self._is_last else _WORK
        end = self._end_step
        self.finished += [(h[0], h[1], h[2], h[3], kind, end, 0, h[7], h[8]) for h in hops]
        self._drop_scratch(hops)

    def _finish(self, hop: Hop, code: Code) -> None:
        kind = _DONE if self._is_last or code else _WORK
        # An error's hop says behind which step it arose, so that the client is told the stage.
        stage = self._at_step + 1 if code else self._end_step
        self.finished.append((hop[0], hop[1], hop[2], hop[3], kind, stage, int(code), hop[7], hop[8]))
        self._drop_scratch((hop,))

    def _fail(self, hop: Hop, error: RequestError) -> None:
        """Leave the error's text in the slot: field, NUL, message."""
        text = f"{error.field[:64]}\0{error.message}".encode("ascii", "replace")[:ERROR_TEXT_BYTES]
        self._error[hop[0]] = np.frombuffer(text.ljust(ERROR_TEXT_BYTES, b"\0"), np.uint8)
        self._finish(hop, error.code)

    def _drop_scratch(self, hops: Sequence[Hop]) -> None:
        for link in self._scratch:
            for hop in hops:
                link.drop(hop[0])
