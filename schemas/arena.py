"""Shared memory as each process sees it: the board of columns, and one arena for each lane.

Rules of this memory (they are model-checked, ``tests/model``): each u64 word has one writer at a time, named here; words are
stored and read only through the numpy views below, never by ``struct.pack_into`` (it tears). A slot's other bytes belong to
the process that holds its hop. Nothing here decides anything.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .plan import BATCH_WORDS, DESCRIPTOR_WORDS, ERROR_TEXT_BYTES, MAX_COLUMNS, MAX_TENSORS, STAMP_WORDS, LanePlan, word_layout
from .words import BOARD_BYTES, COLUMN_WORDS, HEAD_WORDS

Words: TypeAlias = NDArray[np.uint64]
Bytes: TypeAlias = NDArray[np.uint8]

_MADV_DONTFORK = 10
_libc = ctypes.CDLL(None, use_errno=True)


def slots_with(holder: Words, incarnation: int) -> int:
    """Return how many slots *incarnation* has or is about to take: what waits there, and what it works on.

    The holder words say it by themselves, so there is no counter that could drift when hops are lost with a process.
    """
    return int(np.count_nonzero(holder & np.uint64(0xFFFFFFFF) == incarnation))


def holder_word(giver: int, taker: int) -> int:
    """Return the holder word (from, to) of two incarnations."""
    return giver << 32 | taker


def scalars(words: Words) -> memoryview:
    """Return *words* flat, as plain integers: one load or store costs 40 ns this way, 100 as a numpy scalar."""
    return words.reshape(-1).view(np.uint8).data.cast("Q")


def map_shared(descriptor: int, size: int, *, writable: bool = True, populate: bool = False) -> NDArray[np.uint8]:
    """Map *descriptor* shared; a forked child gets no mapping, so that none outlives the reap of its parent.

    Args:
        populate: enter every page now (40 ns each), so that no first touch is slower than others.
    """
    flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if populate else 0)
    memory = mmap.mmap(descriptor, size, flags, mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
    view = np.frombuffer(memory, np.uint8)
    _libc.madvise(ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(size), _MADV_DONTFORK)
    return view


class Board:
    """Head and columns of all processes: ``columns[c]`` is 16 words."""

    def __init__(self, descriptor: int) -> None:
        words = map_shared(descriptor, BOARD_BYTES).view(np.uint64)
        self.head: Words = words[:HEAD_WORDS]
        self.columns: Words = words[HEAD_WORDS:].reshape(MAX_COLUMNS, COLUMN_WORDS)


class LaneArena:
    """One lane's shared words and regions. N slots, S steps, L links.

    Views: generation (N,), holder (N,), held (columns, N), run_pairs (columns, N), batches (columns, 8), stamps (N, S, 3),
    descriptors (L, N, 8, 16)
    as uint64; error (N, 256) and regions[r] (N, stride) as uint8.
    """

    def __init__(self, descriptor: int, plan: LanePlan) -> None:
        self.plan = plan
        self.memory = self._bytes = map_shared(descriptor, plan.arena_bytes)
        slots, steps, links = plan.slots, len(plan.steps), len(plan.links)
        at = word_layout(slots, steps, links)
        self.generation: Words = self._words(at.generation, slots)
        self.holder: Words = self._words(at.holder, slots)
        self.held: Words = self._words(at.held, MAX_COLUMNS * slots).reshape(MAX_COLUMNS, slots)
        self.run_pairs: Words = self._words(at.run_pairs, MAX_COLUMNS * slots).reshape(MAX_COLUMNS, slots)
        self.batches: Words = self._words(at.batches, MAX_COLUMNS * BATCH_WORDS).reshape(MAX_COLUMNS, BATCH_WORDS)
        self.stamps: Words = self._words(at.stamps, slots * steps * STAMP_WORDS).reshape(slots, steps, STAMP_WORDS)
        shape = (links, slots, MAX_TENSORS, DESCRIPTOR_WORDS)
        self.descriptors: Words = self._words(at.descriptors, links * slots * MAX_TENSORS * DESCRIPTOR_WORDS).reshape(shape)
        self.error: Bytes = self._bytes[at.error : at.error + slots * ERROR_TEXT_BYTES].reshape(slots, ERROR_TEXT_BYTES)
        self.regions: list[Bytes] = [
            self._bytes[r.offset : r.offset + r.stride * slots].reshape(slots, r.stride) for r in plan.regions
        ]

    def _words(self, offset: int, count: int) -> Words:
        return self._bytes[offset : offset + count * 8].view(np.uint64)


# descriptor of one tensor in one slot, 16 words
#   0 dtype | 1 rank | 2 nbytes | 3 offset in the slot's row | 4..11 dims | 12..15 name, UTF-8, where a lane takes any tensors
NAME_WORD = 12
MAX_NAME_BYTES = 32


def write_descriptor(words: Words, dtype: int, shape: tuple[int, ...], *, nbytes: int, offset: int) -> None:
    """Write one tensor's descriptor; *words* is (16,) of a slot that the caller holds."""
    words[: 4 + len(shape)] = (dtype, len(shape), nbytes, offset, *shape)


def write_name(words: Words, name: bytes) -> None:
    """Write a tensor's name of at most MAX_NAME_BYTES bytes beside its descriptor."""
    words[NAME_WORD:].view(np.uint8)[:] = np.frombuffer(name.ljust(MAX_NAME_BYTES, b"\0"), np.uint8)


def read_name(words: Words) -> str:
    """Return the name written by ``write_name``."""
    return words[NAME_WORD:].tobytes().rstrip(b"\0").decode()


def read_descriptor(words: Words) -> tuple[int, tuple[int, ...], int, int]:
    """Return (dtype, shape, nbytes, offset) from a slot that the caller holds."""
    dtype, rank, nbytes, offset, *dims = words[:NAME_WORD].tolist()
    return dtype, tuple(dims[:rank]), nbytes, offset
