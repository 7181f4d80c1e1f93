"""Shared words never tear: another process reads one stored value or the other, whichever way they are stored and loaded."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from server import PATIENCE_S, wait_until
from word_writer import STORED, UNTOUCHED, VALUES, WORDS

from schemas.arena import scalars

WRITER = Path(__file__).with_name("word_writer.py")
LOOK_S = 0.25
WAYS = ("numpy_scalar", "fancy_index", "fancy_list", "slice_of_words", "one_word_slice", "memory_view")


@contextmanager
def written(way: str) -> Iterator[np.ndarray]:
    """Yield words that another process stores to, from the moment at which it does."""
    descriptor = os.memfd_create("slotline.test")
    os.ftruncate(descriptor, WORDS * 8)
    memory = mmap.mmap(descriptor, WORDS * 8)
    words = np.frombuffer(memory, np.uint64)
    words[:] = UNTOUCHED
    words[STORED] = VALUES[0]
    writer = subprocess.Popen([sys.executable, WRITER, str(descriptor), way], pass_fds=[descriptor])
    try:
        wait_until(lambda: int(words[0]) != VALUES[0], "the writer's first store")
        yield words
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()
        os.close(descriptor)


def seen_in(words: np.ndarray, seconds: float) -> set[int]:
    """Return all values that are read from the stored words in a while, by each way to load; two at the least."""
    plain, index = scalars(words), np.array(STORED)
    seen: set[int] = set()
    until = time.monotonic() + seconds
    # On a busy machine the writer may not run at all for a while.
    while time.monotonic() < until or (len(seen) < 2 and time.monotonic() < until + PATIENCE_S):
        for _ in range(200):
            seen.add(plain[0])
        seen.update(words[index].tolist())
        seen.update(words.tolist()[::2])
        seen.add(int(words[0]))
    return seen


@pytest.mark.parametrize("way", WAYS)
def test_a_stored_word_is_read_whole(way: str) -> None:
    """Old or new, and the words beside it stay as they are."""
    with written(way) as words:
        seen = seen_in(words, LOOK_S)
        beside = words[1::2].tolist()

    assert seen == set(VALUES)
    assert set(beside) == {UNTOUCHED}


def test_struct_would_tear_them() -> None:
    """So it is for private bytes only; and this test can see a torn word."""
    with written("pack_into") as words:
        torn = seen_in(words, LOOK_S) - set(VALUES)

    if not torn:
        pytest.skip("struct.pack_into did not tear on this machine")
