"""What a process is busy with, in shared memory: who is to blame when it dies there, and since when it may hang."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schemas.arena import LaneArena, Words, scalars
from schemas.hop import Hop
from schemas.plan import BATCH_CAUSES, BATCH_ROWS
from schemas.words import RUN_COUNT, RUN_LANE, RUN_LIMIT_NS, RUN_STARTED_NS

from .batcher import Cause

_CAUSES = {cause: at for at, cause in enumerate(BATCH_CAUSES)}


class CallMarks:
    """Says in shared memory which slots the running call into stage code covers, so that a death in it can be laid to them.

    What is on a device runs too, beside whatever the process does: its slots are part of every call, and a call of their own
    between the others. That one begins anew each time, so it hangs when nothing else has happened for its limit.

    It also counts there why batches closed.
    """

    def __init__(self, arena: LaneArena, column: Words, number: int, clock: Callable[[], int]) -> None:
        pairs = arena.run_pairs[number]
        self._column = scalars(column)
        self._batches = scalars(arena.batches[number])
        self._pairs = pairs
        self._one_pair = scalars(pairs)
        self._lane = arena.plan.index
        self._air: list[Hop] = []
        self._air_limit_ns = 0
        self.now_ns = clock

    def on_device(self, hops: list[Hop], limit_ns: int) -> None:
        """Take note of all that is on the device from now on; the next ``enter`` or ``leave`` marks it."""
        self._air, self._air_limit_ns = hops, limit_ns

    def enter(self, hops: Sequence[Hop], limit_ns: int) -> int:
        """Mark the call as running and return when it began, ns."""
        if self._air:
            # Between two calls nobody is to blame: half of each would be wrong, and one slot twice would be two deaths.
            self._column[RUN_STARTED_NS] = 0
            hops = [*hops, *self._air]
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
        # Not by self: what a subclass does when a call begins is not for this.
        return CallMarks.enter(self, (), self._air_limit_ns) if self._air else self.now_ns()
