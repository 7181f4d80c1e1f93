"""The slot table of one lane: free list, generations, condemned slots. The rule of architecture.md section 2, broker's side.

Pure: the shared words and the barrier are handed in. Owner: the broker's main thread, the only one that frees a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from schemas.arena import Words, scalars, slots_with
from schemas.words import column_of

from .life import HELD, ORPHAN, Request

# Below so many slots plain stores cost less than one numpy call.
FEW = 8


class SlotWords(Protocol):
    """The shared words that the broker needs of a lane's arena (``schemas.arena.LaneArena``)."""

    generation: Words
    holder: Words
    held: Words
    run_pairs: Words
    batches: Words


@dataclass(slots=True)
class Condemned:
    """A slot whose holder died: which incarnations may still touch it."""

    request: Request
    may_touch: set[int]


class SlotTable:
    """Slots 0..N-1 of a lane. A slot is free, or has exactly one request."""

    def __init__(self, words: SlotWords, barrier: Callable[[], None]) -> None:
        self._words = words
        self._barrier = barrier
        self._holder = words.holder
        self._one_holder = scalars(words.holder)
        self._one_generation = scalars(words.generation)
        self.count = len(words.generation)
        self.generations = [int(value) for value in words.generation]
        self.requests: list[Request | None] = [None] * self.count
        self.condemned: dict[int, Condemned] = {}
        self._free = list(range(self.count - 1, -1, -1))

    @property
    def free_count(self) -> int:
        """How many slots are free."""
        return len(self._free)

    @property
    def used_count(self) -> int:
        """How many slots have a request."""
        return self.count - len(self._free)

    def allocate(self, request: Request) -> int:
        """Give *request* a free slot; the caller made sure that there is one."""
        slot = self._free.pop()
        self.requests[slot] = request
        request.slot = slot
        return slot

    def hand_over(self, slots: list[int], incarnation: int) -> None:
        """Name *incarnation* as the taker of *slots*, before the hops are sent: holder = (broker, incarnation)."""
        if len(slots) > FEW:
            self._holder[slots] = incarnation
            return
        for slot in slots:
            self._one_holder[slot] = incarnation

    def take_back(self, slot: int) -> None:
        """Name the broker as the holder of a slot whose hop came back."""
        self._one_holder[slot] = 0

    def free(self, slot: int) -> None:
        """Put a slot back: its hop has returned, or nobody can touch it any more. Its next life is another generation, so that a
        hop of this one that should come again, or late, is known for what it is.
        """
        request = self.requests[slot]
        assert request is not None, f"slot {slot} freed twice"
        self.requests[slot] = None
        generation = (self.generations[slot] + 1) & 0xFFFFFFFF
        self.generations[slot] = self._one_generation[slot] = generation
        request.slot = -1
        self._free.append(slot)

    def owner_of(self, slot: int, generation: int) -> Request | None:
        """Return the request for which a hop with this slot and generation speaks; None for a late hop of an earlier life."""
        if slot >= self.count or self.generations[slot] != generation:
            return None
        request = self.requests[slot]
        return request if request is not None and request.state in (HELD, ORPHAN) else None

    def named_by(self, live: Iterable[int]) -> list[int]:
        """Return the HELD and ORPHAN slots whose holder word names an incarnation that is not in *live*."""
        holders = self._words.holder
        alive = np.fromiter(live, np.uint64)
        lost = ~(np.isin(holders >> np.uint64(32), alive) & np.isin(holders & np.uint64(0xFFFFFFFF), alive))
        slots: list[int] = np.flatnonzero(lost).tolist()
        return [slot for slot in slots if (r := self.requests[slot]) is not None and r.state in (HELD, ORPHAN)]

    def held_by(self, incarnation: int) -> int:
        """Return how many slots an incarnation has or is about to take."""
        return slots_with(self._words.holder, incarnation)

    def takers(self) -> set[int]:
        """Return the incarnations that are to take or have taken a slot, 0 for the broker left out."""
        return set(np.unique(self._words.holder & np.uint64(0xFFFFFFFF)).tolist()) - {0}

    def running_call(self, incarnation: int, count: int) -> set[tuple[int, int]]:
        """Return the (slot, generation) pairs of a reaped process's running call."""
        pairs = self._words.run_pairs[column_of(incarnation), :count].tolist()
        return {(pair >> 32, pair & 0xFFFFFFFF) for pair in pairs}

    def condemn(self, slots: Iterable[int], live: set[int]) -> None:
        """Start a new generation in *slots*, and note who may still touch the old one: all that are not reaped."""
        for slot in slots:
            request = self.requests[slot]
            assert request is not None
            self.generations[slot] = (self.generations[slot] + 1) & 0xFFFFFFFF
            self._words.generation[slot] = self.generations[slot]
            self.condemned[slot] = Condemned(request, live - {0})
        self._barrier()

    def quiet(self, live: set[int]) -> list[Request]:
        """Return the requests of condemned slots that nobody can touch any more; the slots are no longer condemned."""
        quiet = [slot for slot, entry in self.condemned.items() if self._is_quiet(slot, entry, live)]
        if not quiet:
            return []
        self._barrier()
        for slot in quiet:
            self.take_back(slot)
        return [self.condemned.pop(slot).request for slot in quiet]

    def _is_quiet(self, slot: int, entry: Condemned, live: set[int]) -> bool:
        held = self._words.held
        entry.may_touch = {i for i in entry.may_touch & live if held[column_of(i), slot]}
        return not entry.may_touch
