"""The README's client, embedded pipeline and config, run as they stand there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from places import StartServer
from server import DEMO, PATIENCE_S, ROOT, run_once

ENDPOINT = "ipc://run/slotline.ipc"


def fenced(language: str, number: int = 0) -> str:
    """Return a fenced block of *language* of the README, counted from 0."""
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return found[number]


def test_the_readmes_client_runs(make_server: StartServer) -> None:
    """Ten lines; only the endpoint is the test's own. The first part of the demo is not good, and every tick is answered."""
    program = fenced("python")
    assert len(program.splitlines()) <= 10
    assert program.count(ENDPOINT) == 1
    server = make_server(DEMO).start()

    command = [sys.executable, "-c", program.replace(ENDPOINT, server.endpoint)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("NG [[")
    assert "\n1000 [" in run.stdout
    assert server.stop() == 0


def test_the_readmes_embedded_pipeline_runs() -> None:
    """It prints the tick's forecast."""
    command = [sys.executable, "-c", fenced("python", 1)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("[[0.0")


def test_the_readmes_config_can_be_served(place: Path) -> None:
    """Its model is the demo's, beside it."""
    shutil.copy(ROOT / "stages" / "demo" / "surface_qc.onnx", place)
    (place / "line.toml").write_text(fenced("toml"))

    run = run_once(place, "check", "line.toml", "--json")

    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert [process["replicas"] for process in found["processes"]] == [1, 2, 1]
