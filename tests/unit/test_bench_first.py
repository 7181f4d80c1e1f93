"""The first benchmark: what it makes of its reports, and the configuration that it serves."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from bench_helpers import PLAIN

from bench import first
from bench.load import Report
from schemas.config import load_config

CLEAN = Report(
    sent=100, ok=100, errors=0, lost=0, doubled=0, strange=0, errors_by_code={}, seconds=1.0, rate=100.0, p50_us=50.0,
    p90_us=60.0, p99_us=70.0, max_us=80.0, samples=100, client_cpu_s=0.1, late_us=0.0, late_max_us=0.0,
)  # fmt: skip


def make_runs(*, fused_rate: float = 40.0, fused_p50_us: float = 150.0) -> first.Runs:
    """Return two rounds in which the proxy makes 100 requests/s and the bare round trip takes 50 us."""
    runs = first.Runs({}, {})
    fused = {"loaded": dataclasses.replace(CLEAN, rate=fused_rate), "single": dataclasses.replace(CLEAN, p50_us=fused_p50_us)}
    for _ in range(2):
        for side in first.PROXIES:
            runs.add(side, loaded=CLEAN)
        runs.add("ipc", single=CLEAN)
        runs.add("fused", **fused)
        runs.add("stages", **fused)
    return runs


def test_each_bar_is_the_median_ratio_to_its_limit() -> None:
    """40 of 100 requests/s is 0.4; 150 of 50 us is 3."""
    values = {row.bar.name: row.ratio.median for row in first.rows(make_runs())}

    assert values["tick_fused"] == values["tick_stages"] == values["tick_fused_py"] == pytest.approx(0.4)
    assert values["rtt_fused"] == values["rtt_stages"] == pytest.approx(3.0)


def test_a_missed_bar_is_shown() -> None:
    """A row below its bar says so in the table and in the JSON object."""
    runs = make_runs(fused_rate=30.0)
    measured = first.rows(runs)

    assert ">= 0.35 MISSED" in first.table(measured).splitlines()[1]
    ratios = json.loads(first.as_json(measured, runs, PLAIN))["ratios"]
    assert ratios["tick_fused"] == {"value": 0.3, "spread": [0.3, 0.3], "hold": 0.35, "ok": False}
    assert ratios["tick_stages"]["ok"]


def test_a_lost_request_is_told() -> None:
    """A fast server that loses requests does not pass."""
    runs = make_runs()
    assert runs.unclean() == []
    runs.add("fused", loaded=dataclasses.replace(CLEAN, ok=98, lost=2))

    assert runs.unclean() == ["fused: of 100 sent: 0 errors {}, 2 lost, 0 doubled, 0 strange"]


@pytest.mark.parametrize("side", ["fused", "stages"])
def test_the_configuration_is_one_that_slotline_reads(side: str, tmp_path: Path) -> None:
    """Endpoint, model and cut come through, also from a path with a space and a quote."""
    model = tmp_path / 'a "b".onnx'
    model.touch()
    path = first.write_config(tmp_path, model=model, processes=first.CUTS[side])
    config = load_config(path)

    assert config.server.endpoint == f"ipc://{tmp_path}/slotline.ipc"
    assert [list(stages) for stages in config.lanes[0].processes] == first.CUTS[side]
