"""The stability rule: the last three windows within 10 % of their mean."""

from __future__ import annotations

import pytest

from bench.stability import Window, is_stable


def windows(*rates: float, p50_us: float = 100.0) -> list[Window]:
    """Return windows of these rates."""
    return [Window(rate, p50_us) for rate in rates]


@pytest.mark.parametrize(
    ("rates", "stable"),
    [((100, 100), False), ((100, 105, 95), True), ((100, 100, 80), False), ((1, 100, 100, 101), True), ((0, 0, 0), False)],
)
def test_the_last_windows_must_agree_in_rate(rates: tuple[float, ...], stable: bool) -> None:
    """What came before them does not matter; fewer than three are not enough."""
    assert is_stable(windows(*rates)) is stable


def test_they_must_agree_in_latency_too() -> None:
    """A queue that grows at a constant rate is not stable."""
    assert not is_stable([Window(100, p50_us) for p50_us in (100, 200, 300)])
