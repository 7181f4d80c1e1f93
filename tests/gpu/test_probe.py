"""What the probe finds on machines with a scripted driver and packages, and the line that a person reads then: one per row of the
table in docs/gpu.md. The probe is the real one, in its own process."""

from __future__ import annotations

import ctypes

import pytest
from machines import Machine

from schemas.status import DeviceError
from stages.detect import probe
from stages.device_choice import choose
from stages.gpu_probe import DRIVER_LIBRARY


def complete(machine: Machine, **driver: int) -> None:
    """Make a machine where all is well: driver, onnxruntime and cupy of CUDA 13."""
    machine.driver(**driver)
    machine.onnxruntime("13.0")
    machine.cupy(13000)


def told(wanted: str = "auto") -> str:
    """Return the reason for the CPU, or the error."""
    try:
        device = choose(wanted, probe(0), key="lane.qc.device")
    except DeviceError as error:
        return str(error)
    assert device.kind == ("cpu" if wanted == "auto" else wanted), device
    return f"{device.level}: {device.reason}"


def strictly_refused(reason: str) -> None:
    """Check that "cuda" is refused with the same reason."""
    assert reason in told("cuda")
    assert told("cuda").startswith('lane.qc.device: "cuda" cannot be used: ')


def test_a_complete_machine_is_used(machine: Machine) -> None:
    """All steps ran, and what was found is there for the log."""
    complete(machine)
    device = choose("auto", probe(0))

    assert (device.kind, device.level, device.reason) == ("cuda", "info", "GPU 0: Test GPU 0")
    assert device.about["driver_cuda"] == "13.0"
    assert device.about["onnxruntime_cuda"] == "13.0"


def test_without_a_driver_the_cpu_is_used(machine: Machine) -> None:
    """Nothing is imported for it."""
    if _has_driver():
        pytest.skip("this machine has a driver")
    machine.broken("onnxruntime", "it was imported")
    facts = probe(0)

    assert (facts.onnxruntime_error, facts.died_at) == ("", "")
    assert told() == "info: GPU: none (NVIDIA driver not found); using CPU"
    strictly_refused("NVIDIA driver not found; install the NVIDIA driver")


def test_a_driver_that_does_not_start_is_told_with_its_code(machine: Machine) -> None:
    """For example 803: library and kernel module differ."""
    machine.driver(cuinit=803)

    assert told().startswith("warning: the NVIDIA driver does not start: cuInit gives 803; ")
    strictly_refused("cuInit gives 803")


def test_a_driver_that_shows_no_gpu_is_no_missing_driver(machine: Machine) -> None:
    """A container without --gpus, or CUDA_VISIBLE_DEVICES empty."""
    machine.driver(gpus=0)

    assert told().startswith("warning: the NVIDIA driver shows no GPU; ")
    strictly_refused("the NVIDIA driver shows no GPU")


def test_an_old_driver_is_told_with_both_versions_and_the_extra(machine: Machine) -> None:
    """Which is another package, or a newer driver."""
    complete(machine, cuda=12040)

    assert told() == (
        "warning: the NVIDIA driver can do CUDA 12.4, onnxruntime needs CUDA 13.0; update the driver, "
        "or pip uninstall -y onnxruntime-gpu && pip install 'slotline[gpu-cuda12]'; using CPU"
    )
    strictly_refused("the NVIDIA driver can do CUDA 12.4, onnxruntime needs CUDA 13.0")


def test_an_onnxruntime_without_cuda_beside_a_gpu(machine: Machine) -> None:
    """The CPU package is the usual mistake."""
    machine.driver()
    machine.onnxruntime("")

    assert "warning: a GPU is present but onnxruntime has no CUDA support; pip uninstall -y onnxruntime" in told()
    assert "pip install 'slotline[gpu]'" in told()
    strictly_refused("a GPU is present but onnxruntime has no CUDA support")


def test_both_packages_of_onnxruntime_are_named_with_the_cure(machine: Machine) -> None:
    """pip does not notice it."""
    complete(machine)
    machine.distribution("onnxruntime", "1.32.0")
    machine.distribution("onnxruntime-gpu", "1.31.1")

    assert told() == (
        "warning: onnxruntime 1.32.0 and onnxruntime-gpu 1.31.1 are both installed and write the same files; "
        "pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'slotline[gpu]'; using CPU"
    )
    strictly_refused("are both installed and write the same files")


def test_a_broken_onnxruntime(machine: Machine) -> None:
    """One of both packages was removed, say."""
    machine.driver()
    machine.broken("onnxruntime", "no attribute __version__")

    assert "warning: onnxruntime cannot be imported (ImportError: no attribute __version__); pip uninstall -y " in told()


def test_a_missing_cupy(machine: Machine) -> None:
    """Or a broken one."""
    machine.driver()
    machine.onnxruntime("13.0")
    machine.broken("cupy", "No module named 'cupy'")

    assert told() == (
        "warning: cupy cannot be used (ImportError: No module named 'cupy'); pip install 'slotline[gpu]'; using CPU"
    )
    strictly_refused("cupy cannot be used")


def test_a_cupy_of_another_cuda(machine: Machine) -> None:
    """The extra named is that of the onnxruntime which the driver can run."""
    machine.driver()
    machine.onnxruntime("12.8")
    machine.cupy(13000)
    machine.distribution("cupy-cuda13x", "14.2.0")

    assert told().startswith("warning: cupy is for CUDA 13, onnxruntime for CUDA 12; pip uninstall -y ")
    assert "slotline[gpu-cuda12]" in told()
    strictly_refused("cupy is for CUDA 13, onnxruntime for CUDA 12")


def test_two_cupys(machine: Machine) -> None:
    """They only warn at their import."""
    complete(machine)
    machine.distribution("cupy-cuda12x", "14.2.0")
    machine.distribution("cupy-cuda13x", "14.2.0")

    assert told().startswith("warning: cupy-cuda12x and cupy-cuda13x are both installed; pip uninstall -y ")


def test_a_missing_library_is_named(machine: Machine) -> None:
    """By the loader's word."""
    machine.driver()
    machine.onnxruntime("13.0", missing="libcudnn.so.999")
    machine.cupy(13000)

    assert told() == (
        "warning: a library of CUDA cannot be loaded (libcudnn.so.999); pip install 'slotline[gpu]', which brings it; using CPU"
    )
    strictly_refused("(libcudnn.so.999)")


def test_a_session_that_does_not_land_on_the_gpu(machine: Machine) -> None:
    """With the fallback disabled it fails, instead of taking the CPU."""
    machine.driver()
    machine.onnxruntime("13.0", opened="raise RuntimeError('fallback disabled')")
    machine.cupy(13000)

    assert "warning: a model of one node does not run on the GPU (RuntimeError: fallback disabled); " in told()
    strictly_refused("a model of one node does not run on the GPU")


def test_a_gpu_that_computes_wrong_is_not_used(machine: Machine) -> None:
    """The first run's result is looked at."""
    machine.driver()
    machine.onnxruntime("13.0", factor=3)
    machine.cupy(13000)

    assert "(CUDAExecutionProvider gave [0.0, 3.0, 6.0, 9.0])" in told()


def test_a_gpu_that_is_not_there(machine: Machine) -> None:
    """gpu.device_id counts from 0."""
    complete(machine, gpus=2)

    with pytest.raises(DeviceError, match=r"there is no GPU 2 \(found: 0: Test GPU 0, 1: Test GPU 1\)"):
        choose("cuda", probe(0), index=2)


def test_a_driver_that_crashes_kills_only_the_probe(machine: Machine) -> None:
    """And is told with the step."""
    machine.driver(crashes=1)

    assert told().startswith("warning: looking for the GPU died or hung at: asking the driver; ")
    strictly_refused("died or hung at: asking the driver")


def test_a_driver_that_hangs_is_given_up(machine: Machine) -> None:
    """After a limit of time; the process is killed."""
    machine.driver(hangs=1)

    assert probe(0, limit_s=15.0).died_at == "asking the driver"


def _has_driver() -> bool:
    try:
        ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        return False
    return True
