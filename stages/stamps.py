"""When each step ran on a slot: (started_ns, done_ns, batch) in the lane's shared words, written by the holder of the slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from schemas.arena import Words, scalars
from schemas.plan import STAMP_WORDS

Stamp: TypeAlias = tuple[int, int, int]


class Stamps:
    """The stamps of one lane; *words* is (slots, steps, 3)."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._flat = scalars(words)
        self._words_per_slot = words.shape[1] * STAMP_WORDS

    def note(self, slots: Sequence[int], step: int, stamp: Stamp) -> None:
        """Write the stamp of *step* into each of *slots*."""
        if len(slots) > 1:
            self._words[slots, step] = stamp
            return
        at = slots[0] * self._words_per_slot + step * STAMP_WORDS
        self._flat[at], self._flat[at + 1], self._flat[at + 2] = stamp
