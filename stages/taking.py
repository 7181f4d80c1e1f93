"""Taking and letting go of slots: the stage's side of the ownership rule (architecture.md section 2), in its one right order.

Take: set ``held``, then compare; a hop that is not for this life of the slot is dropped without touching a byte of it. Let go:
write ``holder``, send, then clear ``held``. Pure shared-memory work; the caller owns the sockets.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from schemas.arena import LaneArena, Words, column_of, holder_word
from schemas.hop import HOP_DTYPE, Hop
from schemas.words import STALE

_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)


class SlotHands:
    """Which slots of one lane this process holds."""

    def __init__(
        self, arena: LaneArena, column: Words, taken: Words, *, incarnation: int, fault: Callable[[str], None] | None
    ) -> None:
        self._generation = arena.generation
        self._holder = arena.holder
        self._held = arena.held[column_of(incarnation)]
        self._mine: NDArray[np.bool_] = np.zeros(len(arena.holder), np.bool_)
        self._column = column
        self._taken = taken
        self._me = incarnation
        self._fault = fault

    def take(self, hops: NDArray[np.void]) -> list[Hop]:
        """Take the slots of *hops* (HOP_DTYPE) and return those hops that are valid."""
        slots = hops["slot"].astype(np.intp)
        if len(hops) > 1 and len(set(slots.tolist())) < len(hops):
            # The same slot twice in one array: an old hop beside a new one. One after the other, so that each is judged alone.
            return [hop for index in range(len(hops)) for hop in self.take(hops[index : index + 1])]
        self._held[slots] = 1
        # Between the store above and the load below there must be a barrier; the broker makes it (schemas.membarrier).
        holders = self._holder[slots]
        valid = (self._generation[slots] == hops["generation"]) & (holders & _LOW == self._me) & (holders >> _HIGH != self._me)
        if not valid.all():
            hops, slots, holders = self._drop_stale(hops, slots, holders, valid)
        if self._fault is not None:
            self._fault("after_take")
            self._fault("between_check_and_write")
        self._holder[slots] = holder_word(self._me, self._me)
        self._mine[slots] = True
        self._count(holders)
        taken: list[Hop] = hops.tolist()
        return taken

    def _drop_stale(
        self, hops: NDArray[np.void], slots: NDArray[np.intp], holders: Words, valid: NDArray[np.bool_]
    ) -> tuple[NDArray[np.void], NDArray[np.intp], Words]:
        stale = slots[~valid]
        self._held[stale[~self._mine[stale]]] = 0
        self._column[STALE] += np.uint64(len(stale))
        return hops[valid], slots[valid], holders[valid]

    def _count(self, holders: Words) -> None:
        """Count what came from each sender, so that it can tell how much waits here."""
        senders = holders >> _HIGH
        first = int(senders[0]) if len(senders) else 0
        if (senders == first).all():
            self._taken[column_of(first)] += np.uint64(len(senders))
            return
        for sender in senders.tolist():
            self._taken[column_of(sender)] += np.uint64(1)

    def let_go(self, hops: list[Hop], *, to: int, send: Callable[[bytes], None]) -> None:
        """Hand the slots of *hops* to incarnation *to*: holder, send, then ``held``; nothing is touched after the send."""
        slots = [hop[0] for hop in hops]
        if self._fault is not None:
            self._fault("after_write")
        self._holder[slots] = holder_word(self._me, to)
        send(np.array(hops, HOP_DTYPE).tobytes())
        if self._fault is not None:
            self._fault("after_send")
        self._mine[slots] = False
        self._held[slots] = 0
