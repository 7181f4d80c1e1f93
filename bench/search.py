"""The search for the highest rate that keeps a promise: bisection between what held and what did not. Pure."""

from __future__ import annotations

from dataclasses import dataclass

# Beyond this the answer would be the noise of one run.
PRECISION = 0.05
MAX_STEPS = 12


@dataclass(slots=True)
class RateSearch:
    """A search below *ceiling*, requests a second, which is more than the server can do.

    Attributes:
        held: the highest rate that held, 0 until one did.
        failed: the lowest rate that did not.
        steps: how many were tried.
    """

    ceiling: float
    held: float = 0.0
    failed: float = 0.0
    steps: int = 0

    def __post_init__(self) -> None:
        """Take the ceiling as failed."""
        self.failed = self.ceiling

    def next_rate(self) -> float | None:
        """Return the rate to try now, None when the search is over."""
        if self.steps >= MAX_STEPS or self.failed - self.held <= PRECISION * self.failed:
            return None
        return (self.held + self.failed) / 2

    def tell(self, rate: float, has_held: bool) -> None:
        """Take in whether *rate* held."""
        self.steps += 1
        if has_held:
            self.held = max(self.held, rate)
        else:
            self.failed = min(self.failed, rate)
