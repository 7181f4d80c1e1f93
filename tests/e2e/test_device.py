"""What the command line says about the device, on the machine that runs the tests and on one with a scripted driver."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import pytest
from machines import Machine
from places import StartServer
from raw_client import statistics
from server import ROOT, RUN, run_once

from clients.local import local_server
from schemas.status import ConfigError

MODEL = ROOT / "stages" / "demo" / "trading_mlp.onnx"


def config(place: Path, device: str) -> str:
    """Write a config of one lane for *device* and return its path."""
    path = place / "device.toml"
    path.write_text(f'[lane.ticks]\nmodel = "{MODEL}"\nmax_encoded_bytes = 4096\ndevice = "{device}"\n')
    return str(path)


@pytest.fixture
def no_driver() -> None:
    """Skip where there is a driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    pytest.skip("this machine has an NVIDIA driver")


@pytest.mark.usefixtures("no_driver")
def test_auto_without_a_driver_runs_on_the_cpu(place: Path) -> None:
    """In text and in JSON, for each lane."""
    path = config(place, "auto")
    text, parsed = run_once(place, "check", path), run_once(place, "check", path, "--json")

    assert (text.returncode, parsed.returncode) == (0, 0)
    assert "device_reason  GPU: none (NVIDIA driver not found); using CPU" in text.stdout
    (lane,) = json.loads(parsed.stdout)["lanes"]
    assert (lane["device"], lane["device_reason"]) == ("cpu", "GPU: none (NVIDIA driver not found); using CPU")


@pytest.mark.usefixtures("no_driver")
@pytest.mark.parametrize("command", ["check", "serve"])
def test_cuda_without_a_driver_is_refused_with_code_3(place: Path, command: str) -> None:
    """One line with the cure, and one JSON object for a script."""
    run = run_once(place, command, config(place, "cuda"), "--json")

    assert run.returncode == 3
    assert run.stderr == (
        'slotline: lane.ticks.device: "cuda" cannot be used: NVIDIA driver not found; '
        'install the NVIDIA driver, or set device = "auto" or "cpu"\n'
    )
    assert json.loads(run.stdout)["error"] in run.stderr


def test_a_gpu_that_cannot_be_used_is_told_with_the_cure(place: Path, machine: Machine) -> None:
    """The packages are this machine's, made for the CPU; the driver is scripted."""
    machine.driver()
    auto, cuda = (run_once(place, "check", config(place, device)) for device in ("auto", "cuda"))
    reason = "a GPU is present but onnxruntime has no CUDA support; pip uninstall -y "

    assert (auto.returncode, cuda.returncode) == (0, 3)
    assert f"device_reason  {reason}" in auto.stdout
    assert f'slotline: lane.ticks.device: "cuda" cannot be used: {reason}' in cuda.stderr


def test_a_lane_for_the_cpu_never_asks_the_driver(place: Path, machine: Machine) -> None:
    """One that crashes whoever asks it does no harm."""
    machine.driver(crashes=1)
    run = run_once(place, "check", config(place, "cpu"))

    assert run.returncode == 0
    assert 'device_reason  device = "cpu"' in run.stdout


@pytest.mark.usefixtures("no_driver")
def test_a_server_tells_once_where_a_lane_runs_and_shows_what_it_took(place: Path, make_server: StartServer) -> None:
    """One event of the process that has the model; the statistics have the lane's bytes on GPUs, none here."""
    server = make_server(Path(config(place, "auto")).read_text()).start()

    (event,) = server.events("device_selected")
    assert (event["lane"], event["device"], event["level"]) == ("ticks", "cpu", "info")
    assert event["reason"] == "GPU: none (NVIDIA driver not found); using CPU"
    assert event["batches"] == [1, 2, 4, 8]
    stats = statistics(server.control)
    assert (stats["lane.ticks.gpu.pool_bytes"], stats["lane.ticks.gpu.pinned_bytes"]) == (0, 0)
    assert server.stop() == 0


@pytest.mark.usefixtures("no_driver")
def test_who_starts_a_server_of_ones_own_gets_its_refusal(place: Path) -> None:
    """As an exception with the server's own reason."""
    command = [*RUN, "serve", config(place, "cuda"), "--json", "--endpoint", f"ipc://{place}/s.ipc"]

    with pytest.raises(ConfigError, match="NVIDIA driver not found"), local_server(command):
        pass
