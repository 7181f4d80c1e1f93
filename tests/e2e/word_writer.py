"""Store two values in turn into shared words, in one of the ways of this code, until killed.

Run as ``word_writer.py DESCRIPTOR WAY``.
"""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from schemas.arena import scalars

# All bytes differ, and neither value has a zero byte: half of one store beside half of another is seen, and so is a cleared word.
VALUES = (0x1111111111111111, 0xEEEEEEEEEEEEEEEE)
# Words between those that are stored to, which nobody writes.
UNTOUCHED = 0x7777777777777777
WORDS = 64
STORED = list(range(0, WORDS, 2))


def stores(memory: mmap.mmap) -> dict[str, Callable[[int], None]]:
    """Return each way to store a value into the words of STORED."""
    words = np.frombuffer(memory, np.uint64)
    plain, index, every_other = scalars(words), np.array(STORED), words[::2]
    first, one = words[:1], words

    def numpy_scalar(value: int) -> None:
        one[0] = value

    def fancy_index(value: int) -> None:
        words[index] = value

    def fancy_list(value: int) -> None:
        words[STORED] = value

    def slice_of_words(value: int) -> None:
        every_other[:] = value

    def one_word_slice(value: int) -> None:
        first[:] = value

    def memory_view(value: int) -> None:
        plain[0] = value

    def pack_into(value: int) -> None:
        struct.pack_into("<Q", memory, 0, value)

    ways = (numpy_scalar, fancy_index, fancy_list, slice_of_words, one_word_slice, memory_view, pack_into)
    return {way.__name__: way for way in ways}


def main() -> None:
    """Store for ever."""
    store = stores(mmap.mmap(int(sys.argv[1]), WORDS * 8))[sys.argv[2]]
    low, high = VALUES
    while True:
        store(low)
        store(high)


if __name__ == "__main__":
    main()
