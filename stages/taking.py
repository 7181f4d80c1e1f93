"""Taking and letting go of slots: the stage's side of the ownership rule (architecture.md section 2), in its one right order.

Take: set ``held``, then compare; a hop that is not for this life of the slot is dropped without touching a byte of it. Let go:
write ``holder``, send, then clear ``held``. Pure shared-memory work; the caller owns the sockets.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from schemas.arena import LaneArena, Words, holder_word, scalars
from schemas.hop import HOP, Hop
from schemas.words import STALE, column_of

from .faults import Faults

_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(32)
_LOW_BITS = 0xFFFFFFFF
# Up to so many hops are handled one by one: below it numpy's calls cost more than they save, most of all on a cold cache.
FEW = 4


class SlotHands:
    """Which slots of one lane this process holds."""

    def __init__(self, arena: LaneArena, column: Words, *, incarnation: int, fault: Faults | None) -> None:
        self._generation = arena.generation
        self._holder = arena.holder
        self._held = arena.held[column_of(incarnation)]
        self._mine: NDArray[np.bool_] = np.zeros(len(arena.holder), np.bool_)
        self._one_generation = scalars(arena.generation)
        self._one_holder = scalars(arena.holder)
        self._one_held = scalars(self._held)
        self._one_mine = self._mine.data
        self._column = column
        self._me = incarnation
        self._mine_word = holder_word(incarnation, incarnation)
        self._fault = fault

    def take(self, hops: list[Hop]) -> list[Hop]:
        """Take the slots of *hops* and return those hops that are valid."""
        if len(hops) <= FEW or len({hop[0] for hop in hops}) < len(hops):
            # The same slot twice in one message is an old hop beside a new one: each is judged alone.
            return [hop for hop in hops if self._take_one(hop)]
        return self._take_many(hops)

    def _take_one(self, hop: Hop) -> bool:
        """The same as ``_take_many``, for one hop."""
        slot = hop[0]
        self._one_held[slot] = 1
        # Between the store above and the loads below there must be a barrier; the broker makes it (schemas.membarrier).
        holder = self._one_holder[slot]
        if self._one_generation[slot] != hop[1] or holder & _LOW_BITS != self._me or holder >> 32 == self._me:
            if not self._one_mine[slot]:
                self._one_held[slot] = 0
            self._column[STALE] += np.uint64(1)
            return False
        if self._fault is not None:
            self._fault("between_check_and_write")
        self._one_holder[slot] = self._mine_word
        self._one_mine[slot] = True
        if self._fault is not None:
            self._fault("after_take")
        return True

    def _take_many(self, hops: list[Hop]) -> list[Hop]:
        slots = np.array([hop[0] for hop in hops], np.intp)
        self._held[slots] = 1
        holders = self._holder[slots]
        same_life = self._generation[slots] == np.array([hop[1] for hop in hops], np.uint64)
        valid = same_life & (holders & _LOW == self._me) & (holders >> _HIGH != self._me)
        if not valid.all():
            stale = slots[~valid]
            self._held[stale[~self._mine[stale]]] = 0
            self._column[STALE] += np.uint64(len(stale))
            hops = [hop for hop, is_valid in zip(hops, valid.tolist(), strict=True) if is_valid]
            slots = slots[valid]
        if self._fault is not None:
            self._fault("between_check_and_write")
        self._holder[slots] = self._mine_word
        self._mine[slots] = True
        if self._fault is not None:
            self._fault("after_take")
        return hops

    def let_go(self, hops: list[Hop], *, to: int, send: Callable[[bytes], None]) -> None:
        """Hand the slots of *hops* to incarnation *to*: holder, send, then ``held``; nothing is touched after the send."""
        if self._fault is not None:
            self._fault("after_write")
            send = self._fault.sender(send)
        if len(hops) <= FEW:
            self._let_go_few(hops, holder_word(self._me, to), send)
            return
        slots = [hop[0] for hop in hops]
        self._holder[slots] = holder_word(self._me, to)
        send(b"".join([HOP.pack(*hop) for hop in hops]))
        if self._fault is not None:
            self._fault("after_send")
        self._mine[slots] = False
        self._held[slots] = 0

    def _let_go_few(self, hops: list[Hop], holder: int, send: Callable[[bytes], None]) -> None:
        for hop in hops:
            self._one_holder[hop[0]] = holder
        send(b"".join([HOP.pack(*hop) for hop in hops]))
        if self._fault is not None:
            self._fault("after_send")
        for hop in hops:
            self._one_mine[hop[0]] = False
            self._one_held[hop[0]] = 0
