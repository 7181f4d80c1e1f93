"""The search for the highest rate that keeps a promise."""

from __future__ import annotations

import pytest

from bench.search import MAX_STEPS, RateSearch


@pytest.mark.parametrize("limit", [90.0, 500.0, 1150.0])
def test_the_search_ends_just_below_the_limit(limit: float) -> None:
    """What it found did hold, and 5 % more did not."""
    search = RateSearch(ceiling=1200.0)
    while (rate := search.next_rate()) is not None:
        search.tell(rate, rate <= limit)

    assert search.held <= limit <= search.failed
    assert search.failed - search.held <= 0.05 * search.failed
    assert search.steps <= MAX_STEPS


def test_nothing_holds() -> None:
    """Then there is no rate, after a bounded number of steps."""
    search = RateSearch(ceiling=1000.0)
    while (rate := search.next_rate()) is not None:
        search.tell(rate, False)

    assert (search.held, search.steps) == (0.0, MAX_STEPS)
