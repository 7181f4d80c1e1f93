"""The files of examples/: presets give the right answers, and programs run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from places import StartServer
from server import DEMO, PATIENCE_S, ROOT, place_environment, run_once

from clients import Client
from clients.demo import judge_parts
from stages.demo import parts_path, ticks_path
from stages.demo.check import check_parts, check_ticks, load_features

EXAMPLES = ROOT / "examples"
PARTS = parts_path()
TICKS = 500
BUDGET_US = int(PATIENCE_S * 1_000_000)


def preset(name: str) -> str:
    """Return a preset's text, its paths starting at the tree as they do in the file itself."""
    return (EXAMPLES / name).read_text().replace('"../', f'"{ROOT}/')


def run_example(place: Path, *arguments: str) -> str:
    """Run one of the programs and return what it prints."""
    environment = {**place_environment(place), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "lane"), [("low_latency", "ticks"), ("throughput", "qc"), ("echo", "echo")])
def test_an_example_config_is_accepted(place: Path, name: str, lane: str) -> None:
    """As it lies there."""
    done = run_once(place, "check", str(EXAMPLES / f"{name}.toml"), "--json")

    assert done.returncode == 0, done.stderr
    assert [found["lane"] for found in json.loads(done.stdout.splitlines()[-1])["lanes"]] == [lane]


def test_the_preset_for_low_latency_gives_the_models_own_answers(make_server: StartServer) -> None:
    """Bit for bit, one at a time and many at once. The preset's own budget, 20 ms, is for a machine with nothing else to do."""
    server = make_server(preset("low_latency.toml")).start()
    rows = load_features(ticks_path())[:TICKS]
    with Client(server.endpoint) as client:
        results = [client.infer("ticks", {"features": row[None]}, budget_us=BUDGET_US) for row in rows[: TICKS // 2]]
        results += client.infer_many("ticks", [{"features": row[None]} for row in rows[TICKS // 2 :]], budget_us=BUDGET_US)

    outputs = {name: np.concatenate([result[name] for result in results]) for name in results[0]}
    assert check_ticks(rows, outputs) == 0
    assert server.stop() == 0


def test_the_preset_for_throughput_gives_the_models_own_verdicts(make_server: StartServer) -> None:
    """Bit for bit, whichever of its processes had the part."""
    server = make_server(preset("throughput.toml")).start()
    with Client(server.endpoint, timeout_s=30.0) as client:
        parts = judge_parts(client, PARTS)

    assert check_parts(PARTS, {part.file: (part.verdict, part.score, part.boxes) for part in parts}) == 0
    assert server.stop() == 0


def test_the_example_programs_run(make_server: StartServer, place: Path) -> None:
    """With the demo's lanes; the first photo is of a bad part, and a station without a server says NG too."""
    photo = str(PARTS / "part_101_00.png")
    server = make_server(DEMO).start()

    assert run_example(place, str(EXAMPLES / "qc_station.py"), server.endpoint, photo) == f"NG {photo}\n"
    assert run_example(place, str(EXAMPLES / "async_ticks.py"), server.endpoint) == "1000 of 1000 ticks scored\n"
    assert run_example(place, str(EXAMPLES / "embedded.py"), str(ROOT / "stages/demo/demo.toml"), photo).startswith("NG [[")
    assert server.stop() == 0
    assert run_example(place, str(EXAMPLES / "qc_station.py"), server.endpoint, photo) == f"NG {photo}\n"
