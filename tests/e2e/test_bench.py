"""The benchmark against real servers, one short run of each mode. No test looks at how fast anything was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_helpers import needs_generator
from server import DEMO, ROOT
from shared_server import shared_server

QUICK = ["--seconds", "0.4", "--warm-up", "0.1", "--window", "0.1"]
WATCHDOG_S = 240


def bench(*words: str, code: int = 0) -> dict[str, Any]:
    """Run the benchmark and return its JSON object."""
    command = [sys.executable, "run.py", "bench", *words, "--json"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WATCHDOG_S, check=False)
    assert result.returncode == code, result.stdout[-2000:] + result.stderr[-2000:]
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


@needs_generator
def test_a_workload_is_swept_in_closed_and_open_loops(tmp_path: Path) -> None:
    """Each load is a point; stages, CPU and memory of the server are in it; the file has what stdout has."""
    out = tmp_path / "report.json"
    report = bench("tick", "--concurrency", "1,8", "--rate", "100", *QUICK, "--out", str(out), "--assert", "lost==0")

    assert json.loads(out.read_text()) == report
    assert (report["schema"], report["target"]["workload"]) == (1, "tick")
    assert [(point["mode"], point["concurrency"]) for point in report["points"]] == [("closed", 1), ("closed", 8), ("open", None)]
    for point in report["points"]:
        assert point["clean"]
        assert [stage["name"] for stage in point["stages"]] == ["decode", "preprocess", "infer", "postprocess"]
        assert sum(point["stages"][2]["batches"].values()) > 0
        assert point["server_cpu_s_per_1000"] is not None
        assert point["memory"]["processes"] == 3


def test_the_generator_in_python_does_the_same() -> None:
    """Slower, with the same report."""
    (point,) = bench("echo", "--concurrency", "4", *QUICK, "--generator", "python")["points"]

    assert point["clean"]
    assert point["ok"] == point["sent"] > 0
    assert point["samples"] > 0


def test_frames_are_handed_over_by_lease() -> None:
    """In a closed loop of as many frames, and in an open one that waits for free ones; the lease comes back between the loads."""
    report = bench("frame", "--lease", "--concurrency", "1,3", "--rate", "10", *QUICK)

    assert report["generator"] == "lease"
    assert "frames = 4" in report["target"]["config"]
    assert [(point["mode"], point["concurrency"]) for point in report["points"]] == [("closed", 1), ("closed", 3), ("open", None)]
    for point in report["points"]:
        assert point["clean"]
        assert point["ok"] == point["sent"] > 0
        assert [stage["name"] for stage in point["stages"]] == ["decode", "preprocess", "postprocess"]


@needs_generator
def test_packed_ticks_are_all_answered() -> None:
    """Sixteen to a message, and replies packed too."""
    (point,) = bench("tick", "--concurrency", "64", "--packed", "16", *QUICK, "--cut", "stages")["points"]

    assert point["clean"]


@needs_generator
def test_a_search_ends_with_a_rate_that_keeps_the_tail() -> None:
    """A minute is kept by any rate."""
    report = bench("echo", "--search", "--p99-us", "60000000", "--seconds", "1", "--warm-up", "0.1")

    assert report["search"]["rate"] > 0
    assert report["points"][0]["p99_us"] <= 60_000_000


@needs_generator
def test_a_claim_that_fails_is_told_by_the_exit_code() -> None:
    """The figures are printed all the same."""
    assert bench("echo", *QUICK, "--assert", "p50_us<0.001", code=1)["points"][0]["ok"] > 0


@needs_generator
def test_a_running_server_is_loaded_with_given_and_random_inputs(tmp_path: Path) -> None:
    """Found by its endpoint; its processes by its lock file."""
    np.save(tmp_path / "row.npy", np.zeros((1, 67), np.float32))
    with shared_server(lambda _: DEMO) as server:
        at = ["--endpoint", server.endpoint, *QUICK]
        random = bench(*at, "--model", "ticks")
        given = bench(*at, "--model", "ticks", "--input", str(tmp_path / "row.npy"))
        parts = bench(*at, "--model", "qc", "--input", str(ROOT / "stages/demo/parts/part_101_00.png"))
        refused = bench(*at, "--model", "qc", code=2)
        unlent = bench(*at, "--model", "ticks", "--lease", code=2)

    assert random["target"]["inputs"] == "random"
    assert all(report["points"][0]["clean"] for report in (random, given, parts))
    assert random["points"][0]["server_cpu_s_per_1000"] is not None
    assert "--input" in refused["error"]
    assert "this server lends no memory to this client" in unlent["error"]


@needs_generator
def test_the_suite_gives_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the rows that are asked for; whether they hold is not this test's business, so neither is the exit code."""
    monkeypatch.delenv("SLOTLINE_BENCH_DATA", raising=False)
    command = ["bench", "--suite", "bars", "--rows", "tick_fused,embedded,part,photo,lease_flat,pss_fused", "--pairs", "1"]
    words = [sys.executable, "run.py", *command, "--seconds", "0.8", "--warm-up", "0.1", "--json"]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=WATCHDOG_S, check=False)
    assert result.returncode in (0, 1), result.stderr[-2000:]
    ratios = json.loads(result.stdout.splitlines()[-1])["ratios"]

    assert list(ratios) == ["tick_fused", "embedded", "photo", "part", "lease_flat", "pss_fused"]
    assert "--data DIR" in ratios["photo"]["skipped"]
    measured = [ratios[name] for name in ("tick_fused", "embedded", "part", "lease_flat", "pss_fused")]
    assert all(row["value"] > 0 and row["spread"][0] <= row["value"] <= row["spread"][1] for row in measured)
    assert not any(row.get("faults") for row in measured)
