"""The JSON of a run: its schema, which scripts rely on, and the comparison of two."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from bench.compare import compare, compare_files
from bench.histogram import Histogram
from bench.load import Load, Report, Stage
from bench.results import envelope, point, table
from bench.stability import Window
from bench.usage import Memory
from schemas.status import ConfigError

REPORT = Report(
    sent=2000, ok=2000, errors=0, lost=0, doubled=0, strange=0, errors_by_code={}, seconds=2.0, rate=500.0, client_cpu_s=0.1,
    late_us=0.0, late_max_us=0.0, timed=1000, backlog_us=5000, stages=(Stage(2000, 9000, {"1": 500, "3": 500}),),
    windows=(Window(500.0, 100.0),) * 3, latency=Histogram.of([100_000] * 900 + [900_000] * 100), server_cpu_s=0.5,
)  # fmt: skip
POINT_KEYS = (
    "mode concurrency wanted_rate arrivals seconds rate goodput p50_us p90_us p99_us p999_us mean_us max_us samples sent ok "
    "errors errors_by_code lost doubled strange clean stable late_us late_max_us server_cpu_s_per_1000 "
    "client_cpu_s_per_1000 backlog_us stages memory windows curve"
)


def make_point(report: Report = REPORT, *, rate: float = 0.0, goodput_us: float | None = None) -> dict[str, Any]:
    """Return the JSON of a closed loop of 8, or of an open one."""
    return point(Load(8, rate=rate), report, ["infer"], goodput_us=goodput_us, memory=Memory(80.0, 10.0, 3))


def make_run(**figures: object) -> dict[str, Any]:
    """Return a whole report of one load."""
    return envelope("run", ["run.py", "bench"]) | {"points": [make_point() | figures]}


def test_a_point_has_exactly_the_keys_of_the_schema() -> None:
    """A key that vanishes breaks somebody's script: raise SCHEMA then."""
    assert list(make_point()) == POINT_KEYS.split()
    assert list(make_run()) == ["schema", "kind", "slotline", "revision", "started", "command", "machine", "points"]
    json.dumps(make_run())


def test_figures_are_means_shares_and_percentiles() -> None:
    """CPU is of 1,000 results of the measured time; a percentile of too few samples is null."""
    found = make_point()

    assert (found["mode"], found["concurrency"], found["wanted_rate"], found["clean"], found["stable"]) == (
        "closed",
        8,
        None,
        True,
        True,
    )
    assert (found["server_cpu_s_per_1000"], found["client_cpu_s_per_1000"], found["backlog_us"]) == (0.5, 0.1, 5.0)
    assert found["stages"] == [{"name": "infer", "queue_us": 2.0, "run_us": 9.0, "batch": 2.0, "batches": {"1": 500, "3": 500}}]
    assert found["p50_us"] == pytest.approx(100, rel=1e-3)
    assert found["p99_us"] == 900.0
    assert found["p999_us"] is None
    assert found["memory"] == {"pss_mib": 80.0, "arena_mib": 10.0, "without_arena_mib": 70.0, "processes": 3}


def test_goodput_counts_what_was_in_time() -> None:
    """Without a limit every result is good."""
    assert make_point()["goodput"] == 500.0
    assert make_point(goodput_us=500)["goodput"] == 450.0


def test_the_table_tells_what_was_not_clean() -> None:
    """And that the windows did not agree."""
    bad = dataclasses.replace(REPORT, ok=1990, errors=4, errors_by_code={"200": 4}, lost=6, windows=())
    lines = table([make_point(), make_point(bad, rate=300.0)]).splitlines()

    assert lines[1].startswith("8 outstanding           500       100")
    assert lines[2].endswith("not stable; 4 errors {'200': 4}, 6 lost, 0 doubled")


def test_a_comparison_gives_ratios() -> None:
    """Of the figures that both have, under the same load; and says when the machines differ."""
    before, after = make_run(), make_run(rate=1000.0, p99_us=None)
    after["machine"] = {**after["machine"], "cpus": 64}
    lines = compare(before, after).splitlines()

    assert any(line.startswith("not the same machine: cpus is") for line in lines)
    assert any(line.split() == ["8", "outstanding:", "rate", "500", "1,000", "2.000"] for line in lines)
    assert "only in A: 8 outstanding: p99_us" in lines


def test_reports_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    """Other kinds, other loads, other files."""
    with pytest.raises(ConfigError, match="is a run and after is a suite"):
        compare(make_run(), envelope("suite", []) | {"ratios": {}})
    with pytest.raises(ConfigError, match="no load or row in common"):
        compare(make_run(), envelope("run", []) | {"points": []})
    for content in ("", "{}", "text", '{"schema": 2, "kind": "run"}'):
        (tmp_path / "a").write_text(content)
        with pytest.raises(ConfigError, match="not a report of schema 1"):
            compare_files(tmp_path / "a", tmp_path / "a")
