"""Medians, spreads and ratios of interleaved measurements. Pure: no clock, no process."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of one figure over all rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of *values*, at least one."""
        return cls(statistics.median(values), min(values), max(values))

    def text(self, pattern: str) -> str:
        """Return "median (least..most)", each formatted by *pattern*, for example "{:,.0f}"."""
        return f"{pattern.format(self.median)} ({pattern.format(self.least)}..{pattern.format(self.most)})"


def ratios(ours: Sequence[float], limit: Sequence[float]) -> list[float]:
    """Return ours/limit per round: each pair was measured one right after the other, so slow drifts of the machine cancel.

    Raises:
        ValueError: the sides have different numbers of rounds, or a limit is 0.
    """
    if len(ours) != len(limit) or 0 in limit:
        raise ValueError(f"pairs of one round each expected, got {len(ours)} and {len(limit)} figures, limits {limit}")
    return [one / other for one, other in zip(ours, limit, strict=True)]
