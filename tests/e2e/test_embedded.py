"""The embedded pipeline and a server of the same config: the same answers, to the last bit."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import configs
import numpy as np
import pytest
from server import DEMO, PATIENCE_S, ROOT, Server, place_environment, run_once
from shared_server import shared_server
from stages_for_tests import ABORT, HANG, HOARD, HOARDED_BYTES

from clients import Client, Encoded, Result, SlotlineError
from schemas.status import ConfigError, RequestError
from stages.demo import config_path, parts_path, ticks_path
from stages.demo.check import load_features
from stages.pipeline import Pipeline

TICKS = 2_000


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Pipeline]:
    """The demo's lanes in this process."""
    with Pipeline(config_path()) as embedded:
        yield embedded


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of the demo's lanes in processes of their own, cut into stages."""
    with shared_server(lambda _: DEMO) as server, Client(_endpoint(server), timeout_s=30.0) as connected:
        yield connected


def _endpoint(server: Server) -> str:
    return server.endpoint


def contents(outputs: Mapping[str, Any] | BaseException) -> dict[str, Any]:
    """Return outputs as what can be compared to the last bit: datatype, shape, bytes."""
    assert isinstance(outputs, Mapping), outputs
    return {
        name: array.tolist() if array.dtype == object else (array.dtype.str, array.shape, array.tobytes())
        for name, array in outputs.items()
    }


def test_ticks_embedded_and_served_are_bit_equal(pipeline: Pipeline, client: Client) -> None:
    """The market file's rows in turn, many at once on both sides, so that batches differ."""
    rows = load_features(ticks_path())
    inputs = [{"features": rows[at % len(rows)][None]} for at in range(TICKS)]

    embedded, served = pipeline.infer_many("ticks", inputs), client.infer_many("ticks", inputs)

    assert list(map(contents, embedded)) == list(map(contents, served))


def test_parts_embedded_and_served_are_bit_equal(pipeline: Pipeline, client: Client) -> None:
    """Verdict, score and boxes of all 24."""
    inputs = [{"image": Encoded(path.read_bytes())} for path in sorted(parts_path().glob("*.png"))]

    embedded, served = pipeline.infer_many("qc", inputs), client.infer_many("qc", inputs)

    assert len(served) == 24
    assert list(map(contents, embedded)) == list(map(contents, served))


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        ("ticks", {"features": np.zeros((1, 66), np.float32)}),
        ("ticks", {"features": np.zeros((1, 67))}),
        ("ticks", {}),
        ("qc", {"image": Encoded(b"no picture at all")}),
        ("tick", {}),
    ],
)
def test_what_a_server_refuses_is_refused_embedded(
    pipeline: Pipeline, client: Client, model: str, inputs: Mapping[str, Any]
) -> None:
    """With the same code."""
    with pytest.raises(RequestError) as embedded:
        pipeline.infer(model, inputs)
    with pytest.raises(SlotlineError) as served:
        client.infer(model, inputs)

    assert embedded.value.code == served.value.code


CALL = """
import sys
from pathlib import Path
import numpy as np
from stages.pipeline import Pipeline
def taken():
    # Not by getrusage: that tells the most of the program before exec too.
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line) * 1024
with Pipeline("config.toml") as pipeline:
    pipeline.infer("bad", {"payload": np.zeros(4, np.uint8)})
    before = taken()
    print("calling", flush=True)
    pipeline.infer("bad", {"payload": np.full(4, int(sys.argv[1]), np.uint8)})
    print(taken() - before, flush=True)
"""


def embed(place: Path, first_byte: int) -> subprocess.Popen[str]:
    """Start a program that runs the stage that misbehaves in its own process, and wait until it calls it."""
    (place / "config.toml").write_text(configs.misbehaving(idempotent=False, hang_limit_ms=500))
    environment = {**place_environment(place), "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
    program = subprocess.Popen(
        [sys.executable, "-c", CALL, str(first_byte)], stdout=subprocess.PIPE, text=True, env=environment, cwd=place
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "calling\n"
    return program


def test_a_stage_that_crashes_takes_its_caller_with_it(place: Path) -> None:
    """There is no other process that could die instead."""
    with embed(place, ABORT) as program:
        assert program.wait(PATIENCE_S) == -signal.SIGABRT


def test_a_stage_that_hangs_hangs_its_caller(place: Path) -> None:
    """Nobody watches it: the lane's hang limit is half a second."""
    with embed(place, HANG) as program:
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(2.0)
        program.kill()


def test_what_a_stage_takes_its_caller_has_taken(place: Path) -> None:
    """Memory has no limit of its own either."""
    with embed(place, HOARD) as program:
        assert program.stdout is not None
        assert int(program.stdout.readline()) > HOARDED_BYTES // 2
        assert program.wait(PATIENCE_S) == 0


LANE = "[lane.x]\nmax_encoded_bytes = 4096\n"


@pytest.mark.parametrize(
    "config",
    [
        LANE + "slotz = 5",
        LANE + "slots = 0",
        LANE + 'model = "none.onnx"',
        LANE + 'model = "half.onnx"',
        LANE + '[lane.x.decode]\nuse = "nowhere:decode"\noutputs = [{ name = "y", dtype = "UINT8", shape = [1] }]',
        LANE + '[lane.x.decode]\nuse = "stages_for_tests:nothing"\noutputs = [{ name = "y", dtype = "UINT8", shape = [1] }]',
        LANE + '[lane.x.preprocess]\nuse = "standardize"',
        "[server]",
        "a = [",
    ],
    ids=range(9),
)
def test_a_wrong_config_is_told_as_check_tells_it(place: Path, config: str) -> None:
    """By a ConfigError with the same line."""
    path = place / "config.toml"
    path.write_text(config)
    (place / "half.onnx").write_bytes((ROOT / "stages" / "demo" / "trading_mlp.onnx").read_bytes()[:3000])
    said = run_once(place, "check", str(path)).stderr

    with pytest.raises(ConfigError) as caught:
        Pipeline(path)
    assert said.splitlines()[-1] == f"slotline: {caught.value}"


def test_a_missing_library_is_told_as_check_tells_it(place: Path) -> None:
    """In a program of its own, where there is none."""
    path = place / "config.toml"
    path.write_text(LANE + '[lane.x.decode]\nuse = "image"')
    (place / "stubs").mkdir()
    (place / "stubs" / "simplejpeg.py").write_text("raise ModuleNotFoundError('no simplejpeg', name='simplejpeg')\n")
    environment = {"PYTHONPATH": f"{place}/stubs:{ROOT}"}
    program = f"from stages.pipeline import Pipeline; Pipeline({str(path)!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**place_environment(place), **environment},
        check=False,
    )

    said = run_once(place, "check", str(path), environment=environment).stderr.splitlines()[-1]
    assert "simplejpeg" in said
    assert done.stderr.splitlines()[-1].removeprefix("schemas.status.ConfigError: ") == said.removeprefix("slotline: ")


def test_a_result_names_the_same_outputs(pipeline: Pipeline, client: Client) -> None:
    """In the same order."""
    inputs = {"features": np.zeros((1, 67), np.float32)}
    served: Result = client.infer("ticks", inputs)

    assert list(pipeline.infer("ticks", inputs)) == list(served)
