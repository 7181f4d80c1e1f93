"""One lane's part in one process: takes hops, runs the steps, gives finished hops back. No socket; the clock is handed in.

The worker process and the embedded pipeline run this same object.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from schemas.arena import LaneArena, Words, scalars
from schemas.hop import LONE, Hop, HopKind
from schemas.plan import BATCH_CAUSES, BATCH_ROWS, ERROR_TEXT_BYTES, STAMP_WORDS, LanePlan, LaneProcess
from schemas.status import Code, RequestError
from schemas.words import RUN_COUNT, RUN_LANE, RUN_LIMIT_NS, RUN_STARTED_NS

from .batcher import Batch, Batcher, Cause
from .links import Link, ScratchLink
from .steps import Infer, RowStep, Shapes

# A call that takes this long hangs, whatever the warm-up said; and so many times the slowest warm-up run.
MIN_HANG_NS = 1_000_000_000
HANG_FACTOR = 10


_CAUSES = {cause: at for at, cause in enumerate(BATCH_CAUSES)}
_WORK, _DONE = int(HopKind.WORK), int(HopKind.DONE)


class CallMarks:
    """Says in shared memory which slots the running call into stage code covers, so that a death in it can be laid to them.

    It also counts there why batches closed.
    """

    def __init__(self, arena: LaneArena, column: Words, number: int, clock: Callable[[], int]) -> None:
        pairs = arena.run_pairs[number]
        self._column = scalars(column)
        self._batches = scalars(arena.batches[number])
        self._pairs = pairs
        self._one_pair = scalars(pairs)
        self._lane = arena.plan.index
        self.now_ns = clock

    def enter(self, hops: Sequence[Hop], limit_ns: int) -> int:
        """Mark the call as running and return when it began, ns."""
        count = len(hops)
        if count == 1:
            self._one_pair[0] = hops[0][0] << 32 | hops[0][1]
        else:
            self._pairs[:count] = [hop[0] << 32 | hop[1] for hop in hops]
        self._column[RUN_LANE] = self._lane
        self._column[RUN_COUNT] = count
        self._column[RUN_LIMIT_NS] = limit_ns
        began = self.now_ns()
        self._column[RUN_STARTED_NS] = began
        return began

    def closed(self, cause: Cause, rows: int) -> None:
        """Count a batch."""
        self._batches[_CAUSES[cause]] += 1
        self._batches[BATCH_ROWS] += rows

    def leave(self) -> int:
        """Mark the call as over and return when, ns."""
        self._column[RUN_STARTED_NS] = 0
        return self.now_ns()


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
        self._stamps = arena.stamps
        self._one_stamp = scalars(arena.stamps)
        self._stamps_per_slot = len(plan.steps) * STAMP_WORDS
        self._error = arena.error
        self._marks = marks
        self._hang_ns = max(MIN_HANG_NS, plan.hang_limit_ns)
        self._run_hang_ns = self._hang_ns
        self._incoming: deque[Hop] = deque()
        self._batcher: Batcher[Hop] = Batcher(max(plan.max_batch_size, plan.max_rows), plan.max_queue_delay_ns)
        self._at_step = part.first_step
        self.finished: list[Hop] = []

    def warmed_up(self, slowest_run_ns: int) -> None:
        """Take the slowest warm-up run as the measure of what hangs."""
        self._run_hang_ns = max(self._hang_ns, HANG_FACTOR * slowest_run_ns)

    @property
    def has_incoming(self) -> bool:
        """True while hops wait that no step has seen."""
        return bool(self._incoming)

    def next_wake_ns(self) -> int | None:
        """Return when a held batch must go; None when nothing is held."""
        return None if self._infer is None else self._batcher.next_wake_ns()

    def add(self, hops: Sequence[Hop]) -> None:
        """Take hops whose slots this process holds."""
        self._incoming.extend(hops)

    def work(self, now_ns: int, flush: Callable[[int], None]) -> None:
        """Do one batch's worth of what waits; call ``flush(now_ns)`` after each piece, so that what is finished can leave."""
        if self._incoming:
            self._prepare(now_ns, flush)
        if self._infer is not None and (batch := self._batcher.take(now_ns)) is not None:
            self._run_batch(self._infer, batch, flush)

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
            self._stamp(slot, index, (began, now_ns, 1))
        return now_ns

    # --- the model and after ---------------------------------------------------------------------------------------------

    def _run_batch(self, infer: Infer, batch: Batch[Hop], flush: Callable[[int], None]) -> None:
        """Run one batch; when it raises as a whole, each of its requests once more alone."""
        hops, now_ns = self._in_time(batch)
        if not hops:
            return
        shapes: Shapes = batch.key[1]  # type: ignore[index]
        rows = batch.rows if len(hops) == len(batch.items) else [infer.shape_of(hop[0])[1] for hop in hops]
        self._marks.closed(batch.cause, sum(rows))
        try:
            errors, now_ns = self._call(infer, hops, rows, shapes)
        except RequestError as error:
            self._marks.leave()
            if len(hops) > 1:
                for hop in hops:
                    alone = Batch(batch.key, [hop], [infer.shape_of(hop[0])[1]], batch.oldest_ns, "alone")
                    self._run_batch(infer, alone, flush)
            else:
                self._fail(hops[0], error)
            return
        self._hand_on(hops, errors, now_ns, flush)

    def _in_time(self, batch: Batch[Hop]) -> tuple[list[Hop], int]:
        """Answer what is too late by now; return the rest."""
        now_ns = self._marks.now_ns()
        late = [hop for hop in batch.items if hop[8] <= now_ns]
        for hop in late:
            self._finish(hop, Code.DEADLINE_EXCEEDED)
        return (batch.items if not late else [hop for hop in batch.items if hop[8] > now_ns]), now_ns

    def _call(self, infer: Infer, hops: list[Hop], rows: Sequence[int], shapes: Shapes) -> tuple[list[RequestError | None], int]:
        self._at_step = self._infer_at
        slots = [hop[0] for hop in hops]
        began = self._marks.enter(hops, self._run_hang_ns)
        errors = infer.run(slots, rows, shapes)
        done = self._marks.leave()
        if len(slots) == 1:
            self._stamp(slots[0], self._infer_at, (began, done, rows[0]))
        else:
            self._stamps[slots, self._infer_at] = (began, done, sum(rows))
        return errors, done

    def _stamp(self, slot: int, step: int, words: tuple[int, int, int]) -> None:
        """Note when a step ran on one slot: (started_ns, done_ns, batch)."""
        at = slot * self._stamps_per_slot + step * STAMP_WORDS
        self._one_stamp[at], self._one_stamp[at + 1], self._one_stamp[at + 2] = words

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
