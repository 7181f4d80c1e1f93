"""Latencies as the generators count them, and which percentiles a number of samples can carry. Pure.

The buckets are those of ``histogram.h``: log-linear, three significant digits. A percentile is the top of its bucket, so it is
never reported smaller than it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# With fewer, the chance that no sample at all lies beyond the percentile is above 0.13 %.
MIN_SAMPLES = {0.99: 662, 0.999: 6636}
STEP_BITS = 10
_STEPS = 1 << STEP_BITS


def bucket_top(value_ns: int) -> int:
    """Return the largest value that falls into the same bucket as *value_ns*."""
    if value_ns < 2 * _STEPS:
        return value_ns
    shift = value_ns.bit_length() - 1 - STEP_BITS
    return (((value_ns >> shift) + 1) << shift) - 1


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counted latencies.

    Args:
        buckets: (top in nanoseconds, count), ascending, none of them empty.
        max_ns: the largest latency itself.
    """

    buckets: tuple[tuple[int, int], ...]
    max_ns: int

    @classmethod
    def of(cls, values_ns: Sequence[int]) -> Histogram:
        """Count *values_ns*."""
        counts: dict[int, int] = {}
        for value_ns in values_ns:
            top = bucket_top(value_ns)
            counts[top] = counts.get(top, 0) + 1
        return cls(tuple(sorted(counts.items())), max(values_ns, default=0))

    @property
    def samples(self) -> int:
        """How many latencies were counted."""
        return sum(count for _, count in self.buckets)

    def percentile_us(self, share: float) -> float | None:
        """Return the latency that *share* of the samples do not exceed; None when there are too few to say."""
        samples = self.samples
        if samples < MIN_SAMPLES.get(share, 1):
            return None
        seen = 0
        for top_ns, count in self.buckets:
            seen += count
            if seen >= share * samples:
                return min(top_ns, self.max_ns) / 1e3
        return self.max_ns / 1e3

    def mean_us(self) -> float | None:
        """Return the mean, at most 0.1 % too large."""
        samples = self.samples
        return sum(top_ns * count for top_ns, count in self.buckets) / samples / 1e3 if samples else None

    def within(self, limit_us: float) -> int:
        """Return how many latencies are surely at most *limit_us*."""
        return sum(count for top_ns, count in self.buckets if min(top_ns, self.max_ns) <= limit_us * 1e3)

    def curve(self, points: int = 100) -> list[tuple[float, float]]:
        """Return at most *points* pairs (microseconds, share of samples not above), denser towards the tail."""
        samples, seen, curve = self.samples, 0, []
        wanted = [1 - 10 ** (-4 * step / points) for step in range(points)]
        at = 0
        for top_ns, count in self.buckets:
            seen += count
            share = seen / samples
            if at < len(wanted) and share >= wanted[at]:
                curve.append((min(top_ns, self.max_ns) / 1e3, share))
                while at < len(wanted) and wanted[at] <= share:
                    at += 1
        if curve and curve[-1][1] < 1:
            curve.append((self.max_ns / 1e3, 1.0))
        return curve
