"""The plan survives its way through JSON, and the layout of the shared memory leaves every word and row its own place."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import DEMO, echo_plan, make_plan
from hypothesis import given
from hypothesis import strategies as st

from schemas.plan import (
    BATCH_WORDS,
    DESCRIPTOR_WORDS,
    ERROR_TEXT_BYTES,
    MAX_COLUMNS,
    MAX_TENSORS,
    PAGE_BYTES,
    ROW_ALIGN_BYTES,
    STAMP_WORDS,
    align,
    load_plan,
    place_regions,
    read_plan,
    word_layout,
)


def test_the_demos_plan_comes_back_equal_from_json(tmp_path: Path) -> None:
    """With every tuple, datatype and nested value of its own type."""
    plan = make_plan((DEMO / "demo.toml").read_text())
    (tmp_path / "plan.json").write_text(plan.to_json())

    assert read_plan(plan.to_json()) == plan
    assert load_plan(tmp_path / "plan.json") == plan
    assert repr(read_plan(plan.to_json())) == repr(plan)


@pytest.mark.parametrize(("size", "aligned"), [(0, 0), (1, 64), (64, 64), (65, 128)])
def test_sizes_are_rounded_up(size: int, aligned: int) -> None:
    """Never down."""
    assert align(size, 64) == aligned


@given(st.integers(1, 70), st.integers(0, 5), st.integers(1, 6))
def test_words_do_not_overlap(slots: int, steps: int, links: int) -> None:
    """Each array is 8-byte aligned, begins behind the one before, and ends before the regions."""
    at = word_layout(slots, steps, links)
    sizes = [
        (at.generation, slots * 8),
        (at.holder, slots * 8),
        (at.held, MAX_COLUMNS * slots * 8),
        (at.run_pairs, MAX_COLUMNS * slots * 8),
        (at.batches, MAX_COLUMNS * BATCH_WORDS * 8),
        (at.stamps, slots * steps * STAMP_WORDS * 8),
        (at.descriptors, links * slots * MAX_TENSORS * DESCRIPTOR_WORDS * 8),
        (at.error, slots * ERROR_TEXT_BYTES),
    ]

    starts = [start for start, _ in sizes]
    ends = [start + size for start, size in sizes]
    assert all(start % 8 == 0 for start in starts)
    assert all(end <= start for end, start in zip(ends, [*starts[1:], at.end], strict=True))
    assert at.end % PAGE_BYTES == 0


@given(st.integers(1, 20), st.lists(st.integers(0, 10_000), min_size=1, max_size=4))
def test_regions_do_not_overlap(slots: int, row_bytes: list[int]) -> None:
    """Each has a page of its own to begin with; each row has room, and an alignment that vector loads like."""
    regions, size = place_regions(slots, 8192, [(str(index), rows) for index, rows in enumerate(row_bytes)])

    ends = [8192, *(region.offset + region.stride * slots for region in regions)]
    for region, rows, end in zip(regions, row_bytes, ends, strict=False):
        assert region.offset >= end
        assert region.offset % PAGE_BYTES == 0
        assert region.stride >= max(rows, 1)
        assert region.stride % ROW_ALIGN_BYTES == 0
    assert size >= ends[-1]


def test_a_lanes_memory_begins_with_the_words() -> None:
    """Clients never map them; the regions come behind."""
    plan = echo_plan(slots=3)

    assert plan.regions[0].offset == word_layout(3, len(plan.steps), len(plan.links)).end
    assert plan.arena_bytes % PAGE_BYTES == 0
