"""Where a model runs: from what the probe found to CPU or GPU, and the one line that says why. Pure; ``detect.py`` probes.

The order is that of a person's repairs: driver, packages, versions, libraries, a first run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from schemas.plan import DevicePlan
from schemas.status import DeviceError

# What onnxruntime calls a GPU of NVIDIA.
CUDA_PROVIDER = "CUDAExecutionProvider"
# Versions of CUDA as the driver tells them: 1000 * major + 10 * minor.
CUDA_MAJOR = 1000
# The extra that brings onnxruntime and cupy for a major version of CUDA.
EXTRAS: Mapping[int, str] = {12: "gpu-cuda12", 13: "gpu"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What the probe found out, in its order; what it did not reach keeps its default.

    Args:
        driver_error: why there is no usable driver, "" when there is one.
        driver_cuda: newest CUDA that the driver can do, as 1000 * major + 10 * minor.
        gpus: their names, by index.
        driver: the driver's own version, "" where the system does not tell.
        onnxruntimes: installed distributions of onnxruntime, name to version.
        onnxruntime_has_cuda: whether the imported one was built for CUDA.
        onnxruntime_cuda: which, for example "13.0"; "" when unknown.
        onnxruntime_error: why it cannot be imported.
        cupys: installed distributions of cupy, name to version.
        cupy_cuda: the CUDA that the imported one is for, as *driver_cuda*.
        cupy_error: why it cannot be imported.
        library_error: what the loader says about onnxruntime's CUDA provider, "" when all its libraries are there.
        session_error: why a model of one node did not run on the GPU.
        cudnn: the version of cuDNN, "" when unknown.
        died_at: the step in which the probe died or hung, "" when it came to its end.
    """

    driver_error: str = ""
    driver_cuda: int = 0
    gpus: tuple[str, ...] = ()
    driver: str = ""
    onnxruntimes: Mapping[str, str] = field(default_factory=dict)
    onnxruntime_has_cuda: bool = False
    onnxruntime_cuda: str = ""
    onnxruntime_error: str = ""
    cupys: Mapping[str, str] = field(default_factory=dict)
    cupy_cuda: int = 0
    cupy_error: str = ""
    library_error: str = ""
    session_error: str = ""
    cudnn: str = ""
    died_at: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason not to use the GPU, and what a person can do; *level* of the log line when the CPU takes its place."""

    reason: str
    cure: str
    level: str = "warning"


NO_DRIVER = "NVIDIA driver not found"


def choose(wanted: str, facts: Facts, *, index: int = 0, key: str = "device") -> DevicePlan:
    """Return where a model runs.

    Args:
        wanted: ``auto``, the CPU takes the GPU's place when that cannot be used; or ``cuda``, the GPU or nothing.
        index: which GPU.
        key: the config key that *wanted* comes from, for the error.

    Raises:
        DeviceError: ``cuda`` is wanted and cannot be used.
    """
    finding = next(findings(facts, index), None)
    if finding is None:
        return DevicePlan("cuda", "info", f"GPU {index}: {facts.gpus[index]}", about(facts, index))
    if wanted == "cuda":
        raise DeviceError(f'{key}: "cuda" cannot be used: {finding.reason}; {finding.cure}')
    if finding.level == "info":
        return DevicePlan("cpu", finding.level, f"GPU: none ({finding.reason}); using CPU", about(facts, index))
    return DevicePlan("cpu", finding.level, f"{finding.reason}; {finding.cure}; using CPU", about(facts, index))


def findings(facts: Facts, index: int = 0) -> Iterator[Finding]:
    """Yield each reason not to use GPU *index*, the first to be repaired first."""
    yield from _driver(facts, index)
    yield from _onnxruntime(facts)
    yield from _cupy(facts)
    yield from _first_run(facts)


def _driver(facts: Facts, index: int) -> Iterator[Finding]:
    cure = 'install the NVIDIA driver, or set device = "auto" or "cpu"'
    if facts.driver_error:
        yield Finding(facts.driver_error, cure, level="info" if facts.driver_error == NO_DRIVER else "warning")
    elif index >= len(facts.gpus) and not facts.died_at:
        have = ", ".join(f"{i}: {name}" for i, name in enumerate(facts.gpus)) or "none"
        yield Finding(f"there is no GPU {index} (found: {have})", "set gpu.device_id to one that is there")


def _onnxruntime(facts: Facts) -> Iterator[Finding]:
    if len(facts.onnxruntimes) > 1:
        names = sorted(facts.onnxruntimes)
        told = " and ".join(f"{name} {facts.onnxruntimes[name]}" for name in names)
        yield Finding(
            f"{told} are both installed and write the same files",
            _anew(names, facts),
        )
    if facts.onnxruntime_error:
        yield Finding(f"onnxruntime cannot be imported ({facts.onnxruntime_error})", _anew(facts.onnxruntimes, facts))
    elif not (facts.onnxruntime_has_cuda or facts.died_at or facts.driver_error):
        yield Finding(
            "a GPU is present but onnxruntime has no CUDA support",
            _anew(facts.onnxruntimes, facts),
        )
    needed = _major(facts.onnxruntime_cuda)
    if needed > facts.driver_cuda // CUDA_MAJOR and not facts.driver_error:
        extra = EXTRAS.get(facts.driver_cuda // CUDA_MAJOR)
        other = f", or pip uninstall -y onnxruntime-gpu && pip install 'slotline[{extra}]'" if extra else ""
        yield Finding(
            f"the NVIDIA driver can do CUDA {cuda_text(facts.driver_cuda)}, onnxruntime needs CUDA {facts.onnxruntime_cuda}",
            f"update the driver{other}",
        )


def _cupy(facts: Facts) -> Iterator[Finding]:
    if len(facts.cupys) > 1:
        yield Finding(f"{' and '.join(sorted(facts.cupys))} are both installed", _anew(facts.cupys, facts))
    elif facts.cupy_error:
        yield Finding(f"cupy cannot be used ({facts.cupy_error})", _anew(facts.cupys, facts))
    needed = _major(facts.onnxruntime_cuda)
    if needed and facts.cupy_cuda and facts.cupy_cuda // CUDA_MAJOR != needed:
        yield Finding(
            f"cupy is for CUDA {facts.cupy_cuda // CUDA_MAJOR}, onnxruntime for CUDA {needed}",
            _anew(facts.cupys, facts),
        )


def _first_run(facts: Facts) -> Iterator[Finding]:
    if facts.library_error:
        yield Finding(
            f"a library of CUDA cannot be loaded ({facts.library_error})", f"pip install '{_package(facts)}', which brings it"
        )
    if facts.session_error:
        yield Finding(
            f"a model of one node does not run on the GPU ({facts.session_error})", "see what the driver says: nvidia-smi"
        )
    if facts.died_at:
        yield Finding(
            f"looking for the GPU died or hung at: {facts.died_at}", 'see what the driver says: nvidia-smi; or set device = "cpu"'
        )


def judge_nodes(on_gpu: int, elsewhere: int, *, strict: bool, key: str = "device") -> str:
    """Return the warning about a model of which some nodes run on the CPU, "" when all run on the GPU.

    Raises:
        DeviceError: no node is on the GPU, or some are not and *strict*.
    """
    if not elsewhere:
        return ""
    told = f"{elsewhere} of {on_gpu + elsewhere} nodes run on the CPU"
    if not on_gpu:
        raise DeviceError(f'{key}: "cuda" cannot be used: {told}; export the model with operators that CUDA has')
    if strict:
        raise DeviceError(f"{key}: {told}; export the model with operators that CUDA has, or set gpu.strict_nodes = false")
    return told


def about(facts: Facts, index: int = 0) -> dict[str, str]:
    """Return names and versions for the log; what is unknown is left out."""
    told = {
        "name": facts.gpus[index] if index < len(facts.gpus) else "",
        "driver": facts.driver,
        "driver_cuda": cuda_text(facts.driver_cuda),
        "cudnn": facts.cudnn,
        "onnxruntime": ", ".join(f"{name} {version}" for name, version in facts.onnxruntimes.items()),
        "onnxruntime_cuda": facts.onnxruntime_cuda,
        "cupy": ", ".join(f"{name} {version}" for name, version in facts.cupys.items()),
    }
    return {name: text for name, text in told.items() if text}


def cuda_text(version: int) -> str:
    """Return 13.0 for 13000, "" for 0."""
    return f"{version // CUDA_MAJOR}.{version % CUDA_MAJOR // 10}" if version else ""


def _anew(names: Iterable[str], facts: Facts) -> str:
    """Return the line that removes these distributions and installs what fits; one left behind would spoil the other's files."""
    uninstall = f"pip uninstall -y {' '.join(sorted(names))} && " if names else ""
    return f"{uninstall}pip install '{_package(facts)}'"


def _major(version: str) -> int:
    """Return 13 for "13.0", 0 for nothing."""
    return int(version.split(".")[0]) if version else 0


def _package(facts: Facts) -> str:
    """Return the extra to install: that of the present onnxruntime's CUDA if the driver can do it, else that of the driver's."""
    newest, have = max(EXTRAS), _major(facts.onnxruntime_cuda)
    can = min(facts.driver_cuda // CUDA_MAJOR, newest)
    return f"slotline[{EXTRAS.get(have if 0 < have <= can else can, EXTRAS[newest])}]"
