"""When a measurement has settled: its last windows agree. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# As load generators for model servers do it: the last three windows within 10 % of their mean, in throughput and in latency.
WINDOWS = 3
TOLERANCE = 0.1


class Window(NamedTuple):
    """One part of the measured time."""

    rate: float
    p50_us: float


def is_stable(windows: Sequence[Window]) -> bool:
    """Return whether the last WINDOWS windows are within TOLERANCE of their mean, in rate and in median latency."""
    last = windows[-WINDOWS:]
    if len(last) < WINDOWS:
        return False
    return all(_agree(figures) for figures in zip(*last, strict=True))


def _agree(figures: Sequence[float]) -> bool:
    mean = sum(figures) / len(figures)
    return mean > 0 and all(abs(figure - mean) <= TOLERANCE * mean for figure in figures)
