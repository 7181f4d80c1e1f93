"""Views of the shared memory are of the right shape and place, shared between mappings, and gone in a forked child."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest
from builders import echo_plan, make_arena, make_board, memory
from numpy.typing import NDArray

from schemas.arena import (
    MAX_NAME_BYTES,
    Board,
    LaneArena,
    holder_word,
    read_descriptor,
    read_name,
    scalars,
    write_descriptor,
    write_name,
)
from schemas.plan import DESCRIPTOR_WORDS, ERROR_TEXT_BYTES, MAX_COLUMNS, MAX_TENSORS, STAMP_WORDS
from schemas.tensors import DType
from schemas.words import BOARD_BYTES, COLUMN_WORDS, HEAD_WORDS, column_of


def test_every_view_has_its_shape() -> None:
    """N slots, S steps, L links."""
    plan = echo_plan(slots=3)
    arena = make_arena(plan)

    assert (arena.generation.shape, arena.holder.shape) == ((3,), (3,))
    assert (arena.held.shape, arena.run_pairs.shape) == ((MAX_COLUMNS, 3), (MAX_COLUMNS, 3))
    assert arena.stamps.shape == (3, len(plan.steps), STAMP_WORDS)
    assert arena.descriptors.shape == (len(plan.links), 3, MAX_TENSORS, DESCRIPTOR_WORDS)
    assert arena.error.shape == (3, ERROR_TEXT_BYTES)
    assert [region.shape for region in arena.regions] == [(3, region.stride) for region in plan.regions]


def test_no_two_views_share_a_byte() -> None:
    """A store through one is seen through no other."""
    arena = make_arena(echo_plan(slots=2))
    views: list[NDArray[Any]] = [arena.generation, arena.holder, arena.held, arena.run_pairs, arena.stamps]
    views += [arena.descriptors, arena.error, *arena.regions]
    for number, view in enumerate(views):
        view[...] = number

    assert [np.unique(view).tolist() for view in views] == [[number] for number in range(len(views))]


def test_two_mappings_see_the_same_memory() -> None:
    """As two processes do."""
    plan = echo_plan()
    lane, board = memory(plan.arena_bytes), memory(BOARD_BYTES)
    one, other = LaneArena(lane, plan), LaneArena(lane, plan)
    one.holder[2] = holder_word(3, 4)
    first, second = Board(board), Board(board)
    first.columns[5, 6] = 7
    for descriptor in (lane, board):
        os.close(descriptor)

    assert int(other.holder[2]) == 3 << 32 | 4
    assert int(second.columns[5, 6]) == 7


def test_the_board_has_a_column_for_each_process_and_a_counter_for_each_pair() -> None:
    """And a head."""
    board = make_board()

    assert (board.head.shape, board.columns.shape) == ((HEAD_WORDS,), (MAX_COLUMNS, COLUMN_WORDS))


def test_a_forked_child_has_no_mapping() -> None:
    """A child that outlives its parent's reap could write into another life of a slot; it dies of the attempt instead."""
    arena = make_arena(echo_plan())
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        arena.generation[0] = 1
        os._exit(0)
    _, status = os.waitpid(child, 0)

    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGSEGV


@pytest.mark.parametrize("incarnation", [1, 1 << 8 | 1, 0xFFFFFF << 8 | 127])
def test_an_incarnation_knows_its_column(incarnation: int) -> None:
    """It is its low byte; a pair of incarnations fits one word."""
    assert column_of(incarnation) == incarnation % 256
    assert holder_word(incarnation, incarnation) == incarnation * (2**32 + 1)
    assert holder_word(incarnation, incarnation) < 2**64


def test_scalars_are_the_same_words() -> None:
    """Flat, as plain integers, of any shape."""
    arena = make_arena(echo_plan(slots=2))
    arena.held[1, 1] = 2**64 - 1
    words = scalars(arena.held)
    words[0] = 5

    assert (words[3], len(words), int(arena.held[0, 0])) == (2**64 - 1, MAX_COLUMNS * 2, 5)


@pytest.mark.parametrize("shape", [(), (1,), (2, 0, 3), (1, 2, 3, 4, 5, 6, 7, 8)])
def test_a_descriptor_comes_back(shape: tuple[int, ...]) -> None:
    """Of any rank up to 8, whatever was there before."""
    words = np.full(DESCRIPTOR_WORDS, 99, np.uint64)
    write_descriptor(words, DType.FP16, shape, nbytes=10, offset=64)

    assert read_descriptor(words) == (DType.FP16, shape, 10, 64)


@pytest.mark.parametrize("name", ["", "x", "größe", "n" * MAX_NAME_BYTES])
def test_a_name_comes_back_beside_a_descriptor_of_rank_eight(name: str) -> None:
    """Neither touches the other."""
    words = np.full(DESCRIPTOR_WORDS, 99, np.uint64)
    write_name(words, name.encode())
    write_descriptor(words, DType.BOOL, (1,) * 8, nbytes=1, offset=0)

    assert read_name(words) == name
    assert read_descriptor(words) == (DType.BOOL, (1,) * 8, 1, 0)
