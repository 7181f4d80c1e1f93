"""A suite of figures: groups of servers that are measured in turn, round by round. Knows no server.

All sides of a group are started first and stay up, asleep, while another is measured; each round measures every side once, so
that a machine that is slower for a while is slower for all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from bench.load import Load, Report
from bench.machine import private_directory
from bench.rows import Figures, MissingError

T = TypeVar("T")


class Group(Protocol):
    """Sides that are up."""

    def round(self) -> None:
        """Measure each once."""


@dataclass(slots=True)
class Suite:
    """What is measured, and how long.

    Args:
        wanted: names of the figures that are needed.
        data: the directory of the photo model, None = that of the environment.
        pairs: rounds.
        seconds: measured time of each side in a round, after *warm_up_s* that does not count.
    """

    figures: Figures
    wanted: Collection[str]
    data: Path | None
    pairs: int
    seconds: float
    warm_up_s: float = 0.5

    def wants(self, *names: str) -> bool:
        """Return whether one of these figures is needed."""
        return any(name in self.wanted for name in names)

    def start(self, stack: ExitStack, side: AbstractContextManager[T], *names: str) -> T | None:
        """Start a side if one of its figures is needed."""
        return stack.enter_context(side) if self.wants(*names) else None

    def closed(self, outstanding: int, *, is_echo: bool = False, hello: bytes = b"", seconds: float = 0.0) -> Load:
        """Return a closed loop of this suite's length."""
        return Load(outstanding, seconds=seconds or self.seconds, warm_up_s=self.warm_up_s, is_echo=is_echo, hello=hello)

    def open(self, rate: float, *, is_echo: bool = False) -> Load:
        """Return Poisson arrivals at *rate*."""
        return Load(65536, rate=rate, is_poisson=True, seconds=self.seconds, warm_up_s=self.warm_up_s, is_echo=is_echo)

    def rate(self, name: str, report: Report) -> float:
        """Book a throughput and return it."""
        return self.add(name, report.rate, report)

    def p50(self, name: str, report: Report) -> float:
        """Book a median latency and return it."""
        return self.add(name, report.p50_us, report)

    def p99(self, name: str, report: Report) -> float:
        """Book a 99th percentile and return it, 0 with too few samples."""
        return self.add(name, report.p99_us, report)

    def add(self, name: str, value: float | None, report: Report) -> float:
        """Book a figure of *report*, with what was not clean about it."""
        self.figures.add(name, value, "" if report.is_clean else report.complaint())
        return value or 0.0

    def measure(self, name: str, figures: Collection[str], make: Callable[[ExitStack, Path, Suite], Group]) -> None:
        """Start the group *name* if one of its *figures* is needed, and measure it; what it lacks is the reason to skip it."""
        if not self.wants(*figures):
            return
        with ExitStack() as stack:
            directory = stack.enter_context(private_directory())
            try:
                group = make(stack, directory, self)
            except MissingError as error:
                self.figures.skipped |= dict.fromkeys(figures, str(error))
                return
            for number in range(self.pairs):
                print(f"{name}: round {number + 1} of {self.pairs}", file=sys.stderr, flush=True)
                group.round()
