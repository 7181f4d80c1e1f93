"""Percentiles of the benchmark: exact to three digits, and silent where the samples are too few."""

from __future__ import annotations

import numpy as np
import pytest

from bench.histogram import MIN_SAMPLES, Histogram


def test_percentiles_are_exact_or_at_most_a_thousandth_above() -> None:
    """Log-uniform values over nine decades."""
    values = np.sort(np.exp(np.random.default_rng(3).uniform(0, 22, 20_000)).astype(np.int64))
    histogram = Histogram.of(values.tolist())

    for share in (0.01, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact_us = values[int(np.ceil(share * len(values))) - 1] / 1e3
        assert exact_us <= (histogram.percentile_us(share) or 0) <= exact_us * 1.001


@pytest.mark.parametrize(("share", "least"), [(0.99, 662), (0.999, 6636)])
def test_a_percentile_needs_enough_samples(share: float, least: int) -> None:
    """One sample less, and nothing is said; the median always is."""
    assert MIN_SAMPLES[share] == least
    assert Histogram.of([1000] * least).percentile_us(share) == 1.0
    assert Histogram.of([1000] * (least - 1)).percentile_us(share) is None
    assert Histogram.of([1000] * (least - 1)).percentile_us(0.5) == 1.0


def test_an_empty_histogram_knows_nothing() -> None:
    """No answer at all is no latency of 0."""
    empty = Histogram.of([])

    assert (empty.samples, empty.percentile_us(0.5), empty.mean_us(), empty.curve()) == (0, None, None, [])


def test_results_within_a_limit_are_counted() -> None:
    """The limit itself counts as kept."""
    histogram = Histogram.of([100_000, 200_000, 300_000])

    assert [histogram.within(limit) for limit in (99, 100.1, 200.1, 1000)] == [0, 1, 2, 3]


def test_the_curve_rises_to_one() -> None:
    """It ends at the largest latency."""
    curve = Histogram.of(list(range(1000, 200_000, 7))).curve()

    assert curve == sorted(curve)
    assert len(curve) <= 101
    assert curve[-1] == (199.996, 1.0)
