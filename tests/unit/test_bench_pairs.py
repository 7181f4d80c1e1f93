"""Medians and ratios of interleaved measurements."""

from __future__ import annotations

import pytest

from bench.pairs import Spread, ratios


def test_a_spread_is_median_least_and_most() -> None:
    """One outlier does not move the median."""
    spread = Spread.of([3.0, 1.0, 100.0])

    assert spread == Spread(median=3.0, least=1.0, most=100.0)
    assert spread.text("{:.0f}") == "3 (1..100)"


def test_ratios_are_taken_within_each_pair() -> None:
    """A machine that becomes twice as slow for both sides changes no ratio."""
    assert ratios([50.0, 25.0], [100.0, 50.0]) == [0.5, 0.5]


@pytest.mark.parametrize(("ours", "limit"), [([1.0], [1.0, 2.0]), ([1.0], [0.0])])
def test_figures_without_a_partner_give_no_ratio(ours: list[float], limit: list[float]) -> None:
    """Different numbers of rounds and a limit of 0 are errors."""
    with pytest.raises(ValueError, match="pairs of one round each"):
        ratios(ours, limit)
