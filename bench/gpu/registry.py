"""What a check is, and the list of all. Each runs in a process of its own, so that one that crashes or hangs spoils no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

# (passed, figures); figures are JSON.
Outcome: TypeAlias = tuple[bool, dict[str, Any]]
# The modules whose import fills the list.
MODULES = ("cpu_checks", "memory_checks", "device_checks", "session_checks", "engine_checks")
# "tool" is run by another check.
TIERS = ("cpu", "A", "B", "tool")


class Skipped(Exception):  # noqa: N818  it is no error
    """What a check needs is not there; the text says what."""


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table in docs/gpu.md.

    Args:
        tier: what it needs. ``cpu``: nothing; ``A``: a GPU and cupy; ``B``: onnxruntime with CUDA too.
        limit_s: it is killed after this.
    """

    name: str
    tier: str
    limit_s: float
    function: Callable[[], Outcome]


CHECKS: dict[str, Check] = {}


def check(tier: str, *, limit_s: float = 40.0) -> Callable[[Callable[[], Outcome]], Callable[[], Outcome]]:
    """Put a function into the list under its own name."""

    def add(function: Callable[[], Outcome]) -> Callable[[], Outcome]:
        assert tier in TIERS
        CHECKS[function.__name__] = Check(function.__name__, tier, limit_s, function)
        return function

    return add


def all_checks() -> dict[str, Check]:
    """Return every check by name, in the order of the table. cupy and onnxruntime are imported by none of these modules."""
    for name in MODULES:
        import_module(f"bench.gpu.{name}")
    return CHECKS
