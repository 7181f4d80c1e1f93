"""The runner of the GPU checks: what it prints and returns, whatever becomes of a check; and cupy has what the checks name."""

from __future__ import annotations

import ast
import ctypes
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bench import gpu_check
from bench.gpu.registry import CHECKS, Check, Outcome, Skipped, all_checks
from stages.gpu_probe import DRIVER_LIBRARY

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gpu.md"


def passes() -> Outcome:
    """Pass with a figure."""
    return True, {"figure": 7}


def fails() -> Outcome:
    """Find something wrong."""
    return False, {"figure": 8}


def raises() -> Outcome:
    """Meet an error."""
    raise ValueError("no such thing")


def lacks() -> Outcome:
    """Need what is not there."""
    raise Skipped("no thing")


def crashes() -> Outcome:
    """Die as a driver may let it."""
    ctypes.string_at(0)
    return True, {}


def hangs() -> Outcome:
    """Never return."""
    time.sleep(3600)
    return True, {}


EXPECTED = {"passes": "ok", "fails": "FAILED", "raises": "ERROR", "lacks": "skipped", "crashes": "CRASHED", "hangs": "TIMEOUT"}


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Check]:
    """Let these functions be the checks, here and in the processes that the runner starts."""
    checks = {f.__name__: Check(f.__name__, "cpu", 3.0, f) for f in (hangs, crashes, raises, fails, lacks, passes)}
    monkeypatch.setattr(gpu_check, "all_checks", lambda: checks)
    child = "import sys; sys.path[:0] = ['tests/gpu', '.']; import test_gpu_check as t; from bench import gpu_check as g; "
    child += "g.all_checks = lambda: {n: t.Check(n, 'cpu', 9, getattr(t, n)) for n in t.EXPECTED}; sys.exit(g.main(sys.argv[1:]))"
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return popen([sys.executable, "-c", child, *command[3:]], **options)

    monkeypatch.setattr(gpu_check.subprocess, "Popen", start)
    return checks


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the JSON object of the last line."""
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


@pytest.mark.usefixtures("scripted")
def test_a_check_that_dies_or_hangs_spoils_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has its status, the file has the same as the last line, and the exit status says that something was wrong."""
    code = gpu_check.main(["--cpu", "--json", str(tmp_path / "out.json")])

    told = report(capsys)
    assert code == 1
    assert {name: result["status"] for name, result in told["checks"].items()} == EXPECTED
    assert told["checks"]["passes"]["figure"] == 7
    assert told["checks"]["raises"]["error"] == "ValueError: no such thing"
    assert (told["ok"], told["complete"]) == (False, True)
    assert json.loads((tmp_path / "out.json").read_text()) == told


@pytest.mark.usefixtures("scripted")
def test_what_passed_before_the_end_came_is_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner itself is killed after the first check."""
    out = tmp_path / "out.json"
    run_one = gpu_check._in_child
    seen: list[str] = []

    def killed(check: Check, limit_s: float) -> dict[str, Any]:
        seen.append(check.name)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return run_one(check, limit_s)

    monkeypatch.setattr(gpu_check, "_in_child", killed)
    with pytest.raises(KeyboardInterrupt):
        gpu_check.main(["--only", "passes", "--only", "fails", "--cpu", "--json", str(out)])

    told = json.loads(out.read_text())
    assert list(told["checks"]) == ["fails"]
    assert not told["complete"]


@pytest.mark.usefixtures("scripted")
def test_passed_and_skipped_checks_are_well(capsys: pytest.CaptureFixture[str]) -> None:
    """A skipped one says what it lacks."""
    assert gpu_check.main(["--cpu", "--only", "passes", "--only", "lacks"]) == 0
    assert report(capsys)["checks"]["lacks"]["why"] == "no thing"


@pytest.mark.usefixtures("scripted")
def test_what_there_is_no_time_for_is_not_passed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told as not run."""
    monkeypatch.setattr(gpu_check, "TIER_S", 0.5)

    assert gpu_check.main(["--cpu", "--only", "passes"]) == 1
    assert report(capsys)["checks"]["passes"]["status"] == "NOT RUN"


@pytest.mark.parametrize("tier", ["A", "B"])
def test_without_a_gpu_the_exit_status_is_77(tier: str, tmp_path: Path) -> None:
    """As test drivers know it: skipped, neither well nor wrong. The file says why."""
    try:
        ctypes.CDLL(DRIVER_LIBRARY)
        pytest.skip("this machine has an NVIDIA driver")
    except OSError:
        pass
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "bench.gpu_check", "--tier", tier, "--json", str(out)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    told = json.loads(run.stdout.splitlines()[-1])
    assert run.returncode == 77
    assert told == json.loads(out.read_text())
    assert told["machine"]["findings"][0].startswith("NVIDIA driver not found")
    assert told["checks"] == {}


@pytest.mark.parametrize("name", ["kernel_shim", "order_on_the_fake"])
def test_the_checks_that_need_no_gpu_pass(name: str) -> None:
    """As --cpu runs them, each in its own process."""
    command = [sys.executable, "-m", "bench.gpu_check", "--cpu", "--only", name]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)

    assert run.returncode == 0, run.stdout
    assert json.loads(run.stdout.splitlines()[-1])["checks"][name]["status"] in ("ok", "skipped")


def test_the_docs_list_every_check_with_its_tier() -> None:
    """The table of what was never run must not lack one."""
    listed = dict(re.findall(r"^\| `(\w+)` \| (A|B|cpu) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))

    assert listed == {name: check.tier for name, check in all_checks().items() if check.tier != "tool"}


def test_each_tier_fits_five_minutes() -> None:
    """No check may take all of it; what remains is told as not run."""
    assert gpu_check.TIER_S < 300
    assert all(check.limit_s <= 120 for check in CHECKS.values())


def test_cupy_has_every_name_that_the_checks_use() -> None:
    """They have never run on a GPU; at least their names are right where cupy is installed."""
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    used = {name for path in sorted((ROOT / "bench" / "gpu").glob("*.py")) for name in _names(path.read_text(encoding="utf-8"))}

    assert len(used) > 20
    assert [name for name in sorted(used) if not _has(cupy, name)] == []


def _names(text: str) -> set[str]:
    """Return the dotted names below ``cupy`` and ``runtime`` in a module."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        for root, prefix in (("cupy.", ""), ("runtime.", "cuda.runtime.")):
            if dotted.startswith(root) and re.fullmatch(r"[\w.]+", dotted):
                found.add(prefix + dotted.removeprefix(root))
    return found


def _has(module: Any, dotted: str) -> bool:
    for part in dotted.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


def test_importing_the_checks_imports_neither_cupy_nor_onnxruntime() -> None:
    """The runner must work where none of them is."""
    code = "import sys; from bench.gpu.registry import all_checks; all_checks(); "
    code += "sys.exit('cupy' in sys.modules or 'onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0
