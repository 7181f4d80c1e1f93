"""The marks of a running call, in a process with faults set: strikes inside the call. Nothing else makes one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from schemas.arena import LaneArena, Words
from schemas.hop import Hop

from .faults import Faults, input_digest
from .links import Link
from .runner import CallMarks


class FaultyMarks(CallMarks):
    """Marks running calls, and strikes in them."""

    def __init__(self, arena: LaneArena, column: Words, number: int, *, faults: Faults, source: Link) -> None:
        super().__init__(arena, column, number, time.monotonic_ns)
        self._faults = faults
        self._source = source

    def enter(self, hops: Sequence[Hop], limit_ns: int) -> int:
        """Mark the call as running, strike, and return when it began, ns."""
        began = super().enter(hops, limit_ns)
        self._faults.call(lambda: [self._digest(hop[0]) for hop in hops])
        return began

    def _digest(self, slot: int) -> str:
        return input_digest(tensor.tobytes() for tensor in self._source.read(slot).values())
