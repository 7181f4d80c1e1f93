"""The window lets so much into a lane as its measured stage times say, between two slots and all of them."""

from __future__ import annotations

from broker.window import Window


def make_window(*, slots: int = 1_000, cuts: int = 0, replicas: int = 1, max_batch_size: int = 8, inside_ns: int = 0) -> Window:
    """Return a window of a lane with many slots and one process."""
    return Window(slots=slots, cuts=cuts, replicas=replicas, max_batch_size=max_batch_size, inside_ns=inside_ns)


def measured(window: Window, stage: int, run_ns: int, batch: int, times: int = 50) -> int:
    """Return the window after *times* equal runs."""
    for _ in range(times):
        window.observe(stage, run_ns, batch)
    return window.size


def test_before_anything_is_measured_two_batches_a_replica_and_one_a_cut_fit() -> None:
    """Enough to keep every process busy from the start."""
    assert make_window(cuts=2, replicas=3).size == 2 * 8 * 3 + 8 * 2


def test_slots_bound_it() -> None:
    """Also where only one is there."""
    assert make_window(slots=4).size == 4
    assert measured(make_window(slots=1), 0, 10, 1) == 1


def test_fast_stages_get_work_for_a_millisecond() -> None:
    """10 us a row: a hundred rows."""
    assert measured(make_window(), 0, 80_000, 8) == 101


def test_slow_stages_get_work_for_two_runs() -> None:
    """A run of 80 ms with 8 rows: 16 rows."""
    assert measured(make_window(), 0, 80_000_000, 8) == 17


def test_the_slowest_stage_decides() -> None:
    """Others wait for it anyhow."""
    window = make_window()
    measured(window, 0, 1_000, 1)

    assert measured(window, 1, 100_000, 1) == 11


def test_what_the_config_says_goes_before_measurement() -> None:
    """inside_us = 500: 50 rows of 10 us."""
    assert measured(make_window(inside_ns=500_000), 0, 10_000, 1) == 51


def test_replicas_and_cuts_widen_it() -> None:
    """Each replica has its own work; on its way to each cut is one more."""
    assert measured(make_window(cuts=2, replicas=2), 0, 100_000, 1) == 2 * 11 + 2


def test_it_never_closes() -> None:
    """A run of minutes still lets one run and one wait."""
    assert measured(make_window(inside_ns=1), 0, 60_000_000_000, 1) == 2


def test_one_slow_run_does_not_turn_it_over() -> None:
    """The mean moves by an eighth."""
    window = make_window()
    measured(window, 0, 10_000, 1)
    window.observe(0, 80_000, 1)

    assert 50 <= window.size < 101


def test_the_backlog_is_worth_its_rows_at_the_measured_rate() -> None:
    """A millisecond as long as nothing is measured."""
    window = make_window(replicas=2)
    assert window.backlog_ns(100) == 1_000_000
    measured(window, 0, 100_000, 1)

    assert abs(window.backlog_ns(100) - 5_000_000) < 5_000
