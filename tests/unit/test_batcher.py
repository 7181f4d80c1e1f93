"""A batch is what is there; nothing is lost, doubled, reordered inside its shape, or held too long."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stages.batcher import Batch, Batcher

FAR_NS = 1 << 60


def add(batcher: Batcher[int], item: int, *, key: str = "a", rows: int = 1, now_ns: int = 0, deadline_ns: int = FAR_NS) -> None:
    """Add one item, with everything the test is not about."""
    batcher.add(key, item, rows=rows, now_ns=now_ns, deadline_ns=deadline_ns)


def test_without_a_delay_whatever_is_there_leaves_at_once() -> None:
    """In arrival order."""
    batcher = Batcher[int](8, 0)
    for item in range(3):
        add(batcher, item, now_ns=5 + item)

    assert batcher.take(8) == Batch("a", [0, 1, 2], [1, 1, 1], 5, "no_delay")
    assert batcher.take(8) is None
    assert len(batcher) == 0


def test_a_batch_has_at_most_max_batch_size_rows() -> None:
    """The rest waits for the next."""
    batcher = Batcher[int](4, 0)
    batcher.add_many("a", list(range(6)), rows=[1] * 6, now_ns=0, deadlines_ns=[FAR_NS] * 6)

    first, second = batcher.take(0), batcher.take(0)

    assert first is not None
    assert second is not None
    assert (first.items, first.cause) == ([0, 1, 2, 3], "full")
    assert (second.items, second.cause) == ([4, 5], "no_delay")


def test_an_item_of_many_rows_is_not_split() -> None:
    """What does not fit whole goes with the next batch, and nothing overtakes it."""
    batcher = Batcher[int](8, 0)
    for item, rows in enumerate((5, 4, 1)):
        add(batcher, item, rows=rows)

    assert batcher.take(0) == Batch("a", [0], [5], 0, "full")
    assert batcher.take(0) == Batch("a", [1, 2], [4, 1], 0, "no_delay")


def test_only_equal_shapes_run_together_oldest_first() -> None:
    """A shape's turn comes by its first item's arrival."""
    batcher = Batcher[int](8, 0)
    add(batcher, 0, key="b", now_ns=1)
    add(batcher, 1, key="a", now_ns=2)
    add(batcher, 2, key="b", now_ns=3)

    assert [batcher.take(9).items for _ in range(2)] == [[0, 2], [1]]  # type: ignore[union-attr]


def test_what_is_left_of_a_shape_queues_by_its_own_age() -> None:
    """Not by that of the items already gone."""
    batcher = Batcher[int](1, 0)
    add(batcher, 0, key="a", now_ns=1)
    add(batcher, 1, key="a", now_ns=3)
    add(batcher, 2, key="b", now_ns=2)

    assert [batcher.take(9).items for _ in range(3)] == [[0], [2], [1]]  # type: ignore[union-attr]


def test_a_partial_batch_leaves_when_its_oldest_item_has_waited_long_enough() -> None:
    """And next_wake_ns says when that is."""
    batcher = Batcher[int](8, 500)
    add(batcher, 0, now_ns=1_000)
    add(batcher, 1, now_ns=1_400)

    assert batcher.take(1_499) is None
    assert batcher.next_wake_ns() == 1_500
    assert batcher.take(1_500) == Batch("a", [0, 1], [1, 1], 1_000, "delay")


def test_a_full_batch_is_not_held() -> None:
    """There is nothing to wait for."""
    batcher = Batcher[int](2, 500)
    add(batcher, 0, now_ns=1_000)
    add(batcher, 1, now_ns=1_001)

    assert batcher.next_wake_ns() == 1_000
    assert batcher.take(1_001) == Batch("a", [0, 1], [1, 1], 1_000, "full")


def test_a_held_batch_leaves_in_time_for_its_tightest_deadline() -> None:
    """The run itself takes its part of what is left."""
    batcher = Batcher[int](8, 500)
    add(batcher, 0, now_ns=1_000)
    add(batcher, 1, now_ns=1_010, deadline_ns=1_200)

    assert batcher.take(1_099, run_ns_estimate=100) is None
    assert batcher.next_wake_ns(run_ns_estimate=100) == 1_100
    assert batcher.take(1_100, run_ns_estimate=100) == Batch("a", [0, 1], [1, 1], 1_000, "deadline")


def test_a_full_shape_passes_an_older_one_that_is_held() -> None:
    """Waiting for more rows does not keep the device idle."""
    batcher = Batcher[int](2, 500)
    add(batcher, 0, key="a", now_ns=1)
    add(batcher, 1, key="b", now_ns=2)
    add(batcher, 2, key="b", now_ns=3)

    assert batcher.take(4) == Batch("b", [1, 2], [1, 1], 2, "full")
    assert batcher.take(4) is None


def test_a_deadline_of_zero_is_none() -> None:
    """It closes nothing early."""
    batcher = Batcher[int](8, 500)
    add(batcher, 0, now_ns=1_000, deadline_ns=0)

    assert batcher.next_wake_ns() == 1_500


def test_an_empty_batcher_never_wakes() -> None:
    """Nor does adding nothing change that."""
    batcher = Batcher[int](8, 500)
    batcher.add_many("a", [], rows=[], now_ns=0, deadlines_ns=[])

    assert batcher.next_wake_ns() is None
    assert batcher.take(FAR_NS) is None


STEPS = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3_000)), max_size=7),
        st.sampled_from("ab"),
        st.booleans(),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, size=st.integers(5, 9), delay_ns=st.sampled_from([0, 300]), estimate_ns=st.sampled_from([0, 50]))
def test_nothing_is_lost_doubled_reordered_or_held_beyond_its_time(
    steps: list[tuple[int, list[tuple[int, int]], str, bool]], size: int, delay_ns: int, estimate_ns: int
) -> None:
    """Whatever comes in whatever order, with a taker that sometimes is busy."""
    batcher = Batcher[int](size, delay_ns)
    now_ns, added, taken = 0, {"a": [], "b": []}, {"a": [], "b": []}
    born_ns: dict[int, int] = {}

    def drain() -> None:
        while (batch := batcher.take(now_ns, estimate_ns)) is not None:
            assert sum(batch.rows) <= size
            assert batch.oldest_ns == min(born_ns[item] for item in batch.items)
            taken[batch.key] += zip(batch.items, batch.rows, strict=True)  # type: ignore[index]
        wake_ns = batcher.next_wake_ns(estimate_ns)
        assert (wake_ns is None) == (len(batcher) == 0)
        assert wake_ns is None or now_ns < wake_ns <= now_ns + delay_ns

    for wait_ns, items, key, is_free in steps:
        now_ns += wait_ns
        numbers = [len(born_ns) + at for at in range(len(items))]
        born_ns.update(dict.fromkeys(numbers, now_ns))
        rows = [count for count, _ in items]
        batcher.add_many(key, numbers, rows=rows, now_ns=now_ns, deadlines_ns=[now_ns + left for _, left in items])
        added[key] += zip(numbers, rows, strict=True)
        if is_free:
            drain()
    now_ns += delay_ns
    drain()

    assert len(batcher) == 0
    assert taken == added
