"""What a person must be told of because it should be impossible: a ledger that does not balance, slots that do not come back.

Decides only; the server logs. Owner: the broker's main thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .lanes import Lane
from .metrics import Snapshot

LOOK_NS = 1_000_000_000
# A single look could be a mistake in the looking; two in a row are one in the counting.
UNBALANCED_LOOKS = 2


class Alarms:
    """Looks once a second; each alarm is given once, and again when it had been over.

    Args:
        ledger: takes a snapshot of it.
    """

    def __init__(self, lanes: Sequence[Lane], ledger: Callable[[], Snapshot]) -> None:
        self._lanes = lanes
        self._ledger = ledger
        self._next_ns = 0
        self._unbalanced = 0

    def look(self, now_ns: int) -> tuple[Snapshot, dict[str, int]]:
        """Return a ledger that is to be told of now, or {}, and lane -> slots that are overheld and were not before."""
        if now_ns < self._next_ns:
            return {}, {}
        self._next_ns = now_ns + LOOK_NS
        ledger = self._ledger()
        self._unbalanced = 0 if ledger["balanced"] else self._unbalanced + 1
        overheld: dict[str, int] = {}
        for lane in self._lanes:
            before = lane.overheld
            if lane.slots.used_count or before:
                count = lane.count_overheld(now_ns)
                if count and not before:
                    overheld[lane.plan.name] = count
        return ledger if self._unbalanced == UNBALANCED_LOOKS else {}, overheld
