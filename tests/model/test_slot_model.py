"""The slot protocol holds in every explored interleaving, and each part of the rule is needed. All lines: check.sh."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WATCHDOG_S = 300
Claim = tuple[str, str, str]


def claims() -> list[Claim]:
    """Return (set, expectation, parameters) of each line of claims.txt."""
    lines = (HERE / "claims.txt").read_text(encoding="utf-8").splitlines()
    parts = [[part.strip() for part in line.split("|")] for line in lines if not line.startswith("#")]
    return [(which, want, parameters) for which, want, parameters in parts]


QUICK = [(want, parameters) for which, want, parameters in claims() if which == "quick"]


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the explorer once."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++: the model of the slot protocol cannot be built")
    program = tmp_path_factory.mktemp("model") / "slot_model"
    source = HERE / "slot_model.cpp"
    subprocess.run([compiler, "-O2", "-std=c++17", "-o", program, source], check=True, timeout=WATCHDOG_S)
    return program


@pytest.mark.parametrize(("want", "parameters"), QUICK, ids=[f"{want}: {parameters}" for want, parameters in QUICK])
def test_the_model_says(explorer: Path, want: str, parameters: str) -> None:
    """The whole rule has no violation; with a part left out, the property that needs it breaks."""
    run = subprocess.run(
        [explorer, *parameters.split(), "quiet=1"], capture_output=True, text=True, timeout=WATCHDOG_S, check=False
    )

    expected = "OK" if want == "ok" else f"VIOLATION ({want.removeprefix('hole ')})"
    assert run.stdout.startswith(expected)
    assert run.returncode == (0 if want == "ok" else 1)
