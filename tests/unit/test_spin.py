"""Which workers wait without sleeping; cores are a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.config import load_config
from schemas.plan import Plan
from stages.describe import describe
from stages.spin import may_spin, usable_cores

# Two workers of one lane and one of the other, a broker and a supervisor.
PROCESSES = 5
LANES = """
[lane.fast]
spin = {spin}
processes = [["decode"], ["preprocess", "postprocess"]]
[lane.slow]
"""


def spins(tmp_path: Path, spin: str, cores: int) -> list[bool]:
    """Return what is said of each process of a server with *cores*."""
    path = tmp_path / "spin.toml"
    path.write_text(LANES.format(spin=spin))
    config = load_config(path)
    plan: Plan = describe(config)
    return [may_spin(config, plan, process, cores) for process in range(len(plan.processes))]


def test_nobody_spins_unless_told_to(tmp_path: Path) -> None:
    """However many cores there are."""
    assert spins(tmp_path, "false", 64) == [False] * 3


def test_a_lane_that_is_told_to_spins_everywhere(tmp_path: Path) -> None:
    """Its processes do, those of others do not."""
    assert spins(tmp_path, "true", 1) == [True, True, False]


@pytest.mark.parametrize(("cores", "expected"), [(PROCESSES - 1, False), (PROCESSES, True)])
def test_auto_wants_a_core_for_each_process_of_the_server(tmp_path: Path, cores: int, expected: bool) -> None:
    """A spinner keeps its core, so with one too few another would wait for it."""
    assert spins(tmp_path, '"auto"', cores) == [expected, expected, False]


def test_the_cores_are_those_that_this_process_may_use() -> None:
    """Not those of the machine."""
    assert usable_cores() >= 1
