"""Which work items run together, and when: the batching decision. No clock, no sockets, no arrays.

Natural batching: with no delay a batch is whatever is there when the device is free. With a delay a partial batch is held until
it is full, until its oldest item has waited long enough, or until its tightest deadline leaves just the run time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

ItemT = TypeVar("ItemT")

# "alone" is the runner's: a request that runs once more after its batch raised.
Cause = Literal["full", "no_delay", "delay", "deadline", "alone"]


@dataclass(frozen=True, slots=True)
class Batch(Generic[ItemT]):
    """Items of one shape to run together, in arrival order.

    Args:
        key: the shape they share.
        items: as they were added.
        rows: rows of each item; their sum is at most the batcher's ``max_batch_size``.
        oldest_ns: when the first of them was added.
        cause: why the batch closed now.
    """

    key: Hashable
    items: list[ItemT]
    rows: list[int]
    oldest_ns: int
    cause: Cause


@dataclass(slots=True)
class _Group(Generic[ItemT]):
    """Waiting items of one key, as columns so that adding and taking many is a few list operations, not a loop."""

    items: list[ItemT] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    added_ns: list[int] = field(default_factory=list)
    deadlines_ns: list[int] = field(default_factory=list)
    total_rows: int = 0


class Batcher(Generic[ItemT]):
    """Holds work items by key and gives them out in batches. Owned by the inference loop's thread.

    Args:
        max_batch_size: rows a batch may have.
        max_delay_ns: how long a partial batch may be held for more; 0 = never.
    """

    def __init__(self, max_batch_size: int, max_delay_ns: int) -> None:
        assert max_batch_size >= 1
        assert max_delay_ns >= 0
        self._max_batch_size = max_batch_size
        self._max_delay_ns = max_delay_ns
        # No empty group is kept: a peer may send any number of shapes.
        self._groups: dict[Hashable, _Group[ItemT]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return self._count

    def add(self, key: Hashable, item: ItemT, *, rows: int, now_ns: int, deadline_ns: int) -> None:
        """Hold one item; see :meth:`add_many`."""
        self.add_many(key, (item,), rows=(rows,), now_ns=now_ns, deadlines_ns=(deadline_ns,))

    def add_many(
        self, key: Hashable, items: Sequence[ItemT], *, rows: Sequence[int], now_ns: int, deadlines_ns: Sequence[int]
    ) -> None:
        """Hold items of one shape that came together, in this order.

        Args:
            key: equal for items that may share a batch.
            items: what :meth:`take` gives back.
            rows: rows of each item, 1 to max_batch_size (a larger item is refused at admission).
            now_ns: not before that of an earlier call.
            deadlines_ns: of each item, absolute; 0 = none.
        """
        assert len(items) == len(rows) == len(deadlines_ns)
        if not items:
            return
        assert min(rows) >= 1
        assert max(rows) <= self._max_batch_size
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group()
        group.items.extend(items)
        group.rows.extend(rows)
        group.added_ns.extend([now_ns] * len(items))
        group.deadlines_ns.extend(deadlines_ns)
        group.total_rows += sum(rows)
        self._count += len(items)

    def take(self, now_ns: int, run_ns_estimate: int = 0) -> Batch[ItemT] | None:
        """Return the batch to run now, from the group whose first item waits longest; None when there is nothing to run yet.

        Args:
            now_ns: the loop's time.
            run_ns_estimate: how long a run is expected to take; a held batch leaves this long before its tightest deadline.
        """
        for key in self._oldest_first():
            cause = self._cause(self._groups[key], now_ns, run_ns_estimate)
            if cause is not None:
                return self._cut(key, cause)
        return None

    def next_wake_ns(self, run_ns_estimate: int = 0) -> int | None:
        """Return when :meth:`take` will have a batch if nothing more comes: a time already past means now, None never."""
        return min((self._due(group, run_ns_estimate)[0] for group in self._groups.values()), default=None)

    def _oldest_first(self) -> list[Hashable]:
        """Return the keys by arrival of their first item."""
        # Nearly always one shape is in use.
        if len(self._groups) <= 1:
            return list(self._groups)
        return sorted(self._groups, key=lambda key: self._groups[key].added_ns[0])

    def _cause(self, group: _Group[ItemT], now_ns: int, run_ns_estimate: int) -> Cause | None:
        """Return why *group* gives a batch now, None when it is to be held."""
        due_ns, cause = self._due(group, run_ns_estimate)
        return cause if due_ns <= now_ns else None

    def _due(self, group: _Group[ItemT], run_ns_estimate: int) -> tuple[int, Cause]:
        """Return from when on *group* gives a batch, and why."""
        oldest_ns = group.added_ns[0]
        if self._is_full(group):
            return oldest_ns, "full"
        if self._max_delay_ns == 0:
            return oldest_ns, "no_delay"
        leave_ns = oldest_ns + self._max_delay_ns
        tightest_ns = min((deadline_ns for deadline_ns in group.deadlines_ns if deadline_ns), default=0)
        if tightest_ns and tightest_ns - run_ns_estimate < leave_ns:
            return tightest_ns - run_ns_estimate, "deadline"
        return leave_ns, "delay"

    def _is_full(self, group: _Group[ItemT]) -> bool:
        """Return True when nothing more would join the group's next batch: it has all rows, or the next item does not fit."""
        return group.total_rows >= self._max_batch_size

    def _cut(self, key: Hashable, cause: Cause) -> Batch[ItemT]:
        """Remove the next batch from its group."""
        group = self._groups[key]
        count = self._fitting(group)
        rows = group.rows[:count]
        batch = Batch(key, group.items[:count], rows, group.added_ns[0], cause)
        if count == len(group.items):
            del self._groups[key]
        else:
            for column in (group.items, group.rows, group.added_ns, group.deadlines_ns):
                del column[:count]
            group.total_rows -= sum(rows)
        self._count -= count
        return batch

    def _fitting(self, group: _Group[ItemT]) -> int:
        """Return how many items, in order, fit into one batch."""
        if group.total_rows <= self._max_batch_size:
            return len(group.items)
        count = total = 0
        for rows in group.rows:
            total += rows
            if total > self._max_batch_size:
                break
            count += 1
        return count
