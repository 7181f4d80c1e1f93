"""Each row of the table of docs/gpu.md as a decision: what was found, where the model runs, what a person is told."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from schemas.config import LaneConfig
from schemas.plan import DevicePlan
from schemas.status import DeviceError
from stages.detect import Detector, read_facts
from stages.device_choice import Facts, choose, findings, judge_nodes
from stages.gpu_probe import is_moot

WELL = Facts(
    driver_cuda=13000,
    gpus=("H200", "L4"),
    driver="580.65.06",
    onnxruntimes={"onnxruntime-gpu": "1.31.1"},
    onnxruntime_has_cuda=True,
    onnxruntime_cuda="13.0",
    cupys={"cupy-cuda13x": "14.2.0"},
    cupy_cuda=13020,
    cudnn="9.14.0",
)

# What differs from a machine where all is well; the level and the beginning of the reason; the cure.
ROWS = {
    "no driver": ({"driver_error": "NVIDIA driver not found"}, "info", "GPU: none (NVIDIA driver not found)", ""),
    "a driver that fails": ({"driver_error": "cuInit gives 803"}, "warning", "cuInit gives 803", "install the NVIDIA driver"),
    "no such GPU": ({"gpus": ()}, "warning", "there is no GPU 0 (found: none)", "gpu.device_id"),
    "an old driver": (
        {"driver_cuda": 12080},
        "warning",
        "the NVIDIA driver can do CUDA 12.8, onnxruntime needs CUDA 13.0",
        "slotline[gpu-cuda12]",
    ),
    "a very old driver": (
        {"driver_cuda": 11080},
        "warning",
        "the NVIDIA driver can do CUDA 11.8, onnxruntime needs CUDA 13.0",
        "update the driver; using CPU",
    ),
    "onnxruntime without CUDA": (
        {"onnxruntime_has_cuda": False, "onnxruntime_cuda": "", "onnxruntimes": {"onnxruntime": "1.32.0"}},
        "warning",
        "a GPU is present but onnxruntime has no CUDA support",
        "pip uninstall -y onnxruntime && pip install 'slotline[gpu]'",
    ),
    "both onnxruntimes": (
        {"onnxruntimes": {"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.31.1"}},
        "warning",
        "onnxruntime 1.32.0 and onnxruntime-gpu 1.31.1 are both installed and write the same files",
        "pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'slotline[gpu]'",
    ),
    "no onnxruntime": (
        {"onnxruntimes": {}, "onnxruntime_has_cuda": False, "onnxruntime_cuda": "", "onnxruntime_error": "No module"},
        "warning",
        "onnxruntime cannot be imported (No module)",
        "pip install 'slotline[gpu]'",
    ),
    "no cupy": (
        {"cupy_error": "No module named 'cupy'", "cupy_cuda": 0, "cupys": {}},
        "warning",
        "cupy cannot be used (No module named 'cupy')",
        "pip install 'slotline[gpu]'",
    ),
    "another CUDA's cupy": (
        {"cupy_cuda": 12090, "cupys": {"cupy-cuda12x": "14.2.0"}},
        "warning",
        "cupy is for CUDA 12, onnxruntime for CUDA 13",
        "pip uninstall -y cupy-cuda12x && pip install 'slotline[gpu]'",
    ),
    "two cupys": (
        {"cupys": {"cupy-cuda12x": "14.2.0", "cupy-cuda13x": "14.2.0"}},
        "warning",
        "cupy-cuda12x and cupy-cuda13x are both installed",
        "pip uninstall -y cupy-cuda12x cupy-cuda13x && pip install 'slotline[gpu]'",
    ),
    "a missing library": (
        {"library_error": "libcudnn.so.9"},
        "warning",
        "a library of CUDA cannot be loaded (libcudnn.so.9)",
        "pip install 'slotline[gpu]'",
    ),
    "a session that fails": (
        {"session_error": "out of memory"},
        "warning",
        "a model of one node does not run on the GPU (out of memory)",
        "nvidia-smi",
    ),
    "a dead probe": (
        {"died_at": "importing cupy"},
        "warning",
        "looking for the GPU died or hung at: importing cupy",
        "nvidia-smi",
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_auto_takes_the_cpu_and_says_why(row: str) -> None:
    """With the level of its log line: having no driver is no fault."""
    changed, level, reason, cure = ROWS[row]
    device = choose("auto", dataclasses.replace(WELL, **changed))  # type: ignore[arg-type]

    assert (device.kind, device.level) == ("cpu", level)
    assert device.reason.startswith(reason)
    assert cure in device.reason
    assert device.reason.endswith("; using CPU")


@pytest.mark.parametrize("row", ROWS)
def test_cuda_is_strict(row: str) -> None:
    """The same reason is an error that names the key; its exit code is 3."""
    changed, _, reason, cure = ROWS[row]
    with pytest.raises(DeviceError) as refused:
        choose("cuda", dataclasses.replace(WELL, **changed), key="lane.qc.device")  # type: ignore[arg-type]

    assert str(refused.value).startswith('lane.qc.device: "cuda" cannot be used: ')
    assert reason.removeprefix("GPU: none (").rstrip(")") in str(refused.value)
    assert cure.removesuffix("; using CPU") in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 3


@pytest.mark.parametrize("wanted", ["auto", "cuda"])
def test_where_all_is_well_the_gpu_is_used(wanted: str) -> None:
    """And the log gets names and versions of that GPU."""
    device = choose(wanted, WELL, index=1)

    assert (device.kind, device.level, device.reason) == ("cuda", "info", "GPU 1: L4")
    assert device.about == {
        "name": "L4",
        "driver": "580.65.06",
        "driver_cuda": "13.0",
        "cudnn": "9.14.0",
        "onnxruntime": "onnxruntime-gpu 1.31.1",
        "onnxruntime_cuda": "13.0",
        "cupy": "cupy-cuda13x 14.2.0",
    }


def test_the_first_to_be_repaired_is_told_first() -> None:
    """A driver before packages, packages before versions, versions before libraries."""
    ill = dataclasses.replace(
        WELL,
        driver_cuda=12040,
        onnxruntimes={"onnxruntime": "1", "onnxruntime-gpu": "1"},
        cupy_cuda=12000,
        library_error="libcudnn.so.9",
        session_error="no",
    )

    reasons = [finding.reason for finding in findings(ill)]
    words = ["both installed", "the NVIDIA driver can do", "cupy is for", "a library", "a model of one node"]
    assert [next(word for word in words if word in reason) for reason in reasons] == words


def test_an_onnxruntime_that_does_not_tell_its_cuda_is_tried() -> None:
    """A wheel that a user built, on a Jetson say: nothing to compare, so the first run decides."""
    own = dataclasses.replace(WELL, onnxruntimes={}, onnxruntime_cuda="")

    assert choose("auto", own).kind == "cuda"


def test_a_newer_driver_than_any_extra_gets_the_newest_extra() -> None:
    """CUDA 14 drivers run CUDA 13."""
    newer = dataclasses.replace(WELL, driver_cuda=14000, cupy_error="gone", cupy_cuda=0)

    assert "slotline[gpu]" in choose("auto", newer).reason


def test_nodes_on_the_cpu_are_told_with_their_number() -> None:
    """They cost copies, and are often not expected."""
    assert judge_nodes(10, 0, strict=True) == ""
    assert judge_nodes(7, 3, strict=False) == "3 of 10 nodes run on the CPU"
    with pytest.raises(DeviceError, match=r"lane\.qc\.device: 3 of 10 nodes run on the CPU; .*gpu\.strict_nodes"):
        judge_nodes(7, 3, strict=True, key="lane.qc.device")


def test_a_model_without_a_node_on_the_gpu_did_not_land_there() -> None:
    """Strict or not."""
    with pytest.raises(DeviceError, match="3 of 3 nodes run on the CPU"):
        judge_nodes(0, 3, strict=False)


def test_a_probe_that_ends_in_mid_line_is_read_up_to_there() -> None:
    """The last whole line says what it was doing."""
    lines = [{"died_at": "a"}, {"driver_cuda": 13000, "gpus": ["L4"], "died_at": ""}, {"died_at": "importing cupy"}]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"cupy_cu'

    assert read_facts(text) == Facts(driver_cuda=13000, gpus=("L4",), died_at="importing cupy")
    assert read_facts("").died_at == "its start"


def test_what_cannot_matter_any_more_is_not_looked_for() -> None:
    """Without a driver nothing heavy is imported, but the packages are listed."""
    assert not is_moot({"driver_error": "no"})
    assert is_moot({"driver_error": "no", "onnxruntimes": {}})
    assert is_moot({"driver_error": "", "onnxruntimes": {}, "onnxruntime_has_cuda": False})
    assert is_moot({"driver_error": "", "onnxruntimes": {}, "onnxruntime_has_cuda": True, "library_error": "x"})
    assert not is_moot({"driver_error": "", "onnxruntimes": {}, "onnxruntime_has_cuda": True, "library_error": ""})


def test_a_lane_for_the_cpu_is_not_probed_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one without a model."""
    monkeypatch.setattr("stages.detect.probe", None)
    detector = Detector()

    assert detector.choose(LaneConfig("echo")) is None
    assert detector.choose(LaneConfig("qc", model=Path("m.onnx"))) == DevicePlan("cpu", "info", 'device = "cpu"')
