"""Look for a GPU and what is needed to use it: the process ``python -m stages.gpu_probe DESCRIPTOR INDEX PARENT``.

A process of its own, because a driver or a library may hang or crash, and because nobody but inference shall have a CUDA context.
Cheap steps first; each writes what it found as one line of JSON, so that a reader knows where it ended. What it means is in
``device_choice.py``.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

from schemas.spawn import die_with_parent
from schemas.status import printable

from .device_choice import CUDA_PROVIDER, NO_DRIVER

Found: TypeAlias = dict[str, Any]

DRIVER_LIBRARY = "libcuda.so.1"
DRIVER_FILE = Path("/proc/driver/nvidia/version")
# Both write the directory onnxruntime; so do its nightly and other builds.
ONNXRUNTIME = re.compile(r"(onnxruntime|ort-nightly)(-(gpu|cuda\d*|qnn|openvino|directml|training|rocm|migraphx))?")
CUPY = re.compile(r"cupy(-(cuda\d+x?|rocm-.*))?")
MAX_CHARS = 200
# y = x + x for four floats, as an ONNX file.
ONE_NODE = base64.b64decode("CAg6OBIEdGVzdAoOCgF4CgF4EgF5IgNBZGRaDwoBeBIKCggIARIECgIIBGIPCgF5EgoKCAgBEgQKAggEQgIQEQ==")


def look(index: int) -> Iterator[tuple[str, Callable[[], Found]]]:
    """Yield (what is done, the step that does it); a step returns fields of Facts. The caller stops where the rest is moot."""
    yield "asking the driver", driver
    yield "reading the list of packages", packages
    yield "importing onnxruntime", onnxruntime_cuda
    yield "importing cupy", cupy_cuda
    yield "loading the libraries of CUDA", libraries
    yield "running a model of one node", lambda: first_run(index)


def is_moot(found: Mapping[str, Any]) -> bool:
    """Return whether what was found already decides, so that no heavier step need follow."""
    has_packages = "onnxruntimes" in found
    lacks_cuda = "onnxruntime_has_cuda" in found and not found["onnxruntime_has_cuda"]
    return bool((found.get("driver_error") and has_packages) or lacks_cuda or found.get("library_error"))


def driver() -> Found:
    """Ask the driver for its CUDA version and the GPUs' names; this makes no context."""
    try:
        library = ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        return {"driver_error": NO_DRIVER}
    code = library.cuInit(0)
    if code != 0:
        return {"driver_error": f"the NVIDIA driver does not start: cuInit gives {code}"}
    version, count, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    library.cuDriverGetVersion(ctypes.byref(version))
    library.cuDeviceGetCount(ctypes.byref(count))
    gpus = []
    for index in range(count.value):
        library.cuDeviceGetName(name, len(name), index)
        gpus.append(printable(name.value.decode(errors="replace")))
    error = "" if gpus else "the NVIDIA driver shows no GPU"
    return {"driver_error": error, "driver_cuda": version.value, "gpus": gpus, "driver": driver_version()}


def driver_version() -> str:
    """Return the driver's version as its kernel module tells it, "" where it does not (WSL, Jetson)."""
    with contextlib.suppress(OSError):
        told = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", DRIVER_FILE.read_text(errors="replace"))
        return told[0] if told else ""
    return ""


def packages() -> Found:
    """List the distributions that bring onnxruntime or cupy; nothing is imported."""
    installed = {str(d.metadata["Name"] or "").lower(): d.version for d in metadata.distributions()}
    return {
        "onnxruntimes": {name: version for name, version in sorted(installed.items()) if ONNXRUNTIME.fullmatch(name)},
        "cupys": {name: version for name, version in sorted(installed.items()) if CUPY.fullmatch(name)},
    }


def onnxruntime_cuda() -> Found:
    """Import onnxruntime and ask what it was built for. (Its list of providers names CUDA even where no GPU is.)"""
    try:
        onnxruntime = importlib.import_module("onnxruntime")
        has_cuda = CUDA_PROVIDER in onnxruntime.get_available_providers()
        build = importlib.import_module("onnxruntime.capi.build_and_package_info")
    except Exception as error:
        return {"onnxruntime_error": said(error)}
    return {"onnxruntime_has_cuda": has_cuda, "onnxruntime_cuda": str(getattr(build, "cuda_version", "")) if has_cuda else ""}


def cupy_cuda() -> Found:
    """Import cupy and ask which CUDA it is for. That asks the library in its wheel, not the driver."""
    try:
        cupy = importlib.import_module("cupy")
        return {"cupy_cuda": int(cupy.cuda.runtime.runtimeGetVersion())}
    except Exception as error:
        return {"cupy_error": said(error)}


def libraries() -> Found:
    """Load onnxruntime's CUDA provider, with the libraries of NVIDIA's wheels where they are installed."""
    onnxruntime = importlib.import_module("onnxruntime")
    with contextlib.suppress(Exception):
        # It only prints what it does not find; the loader's word below counts.
        onnxruntime.preload_dlls()
    directory = Path(str(onnxruntime.__file__)).parent / "capi"
    try:
        ctypes.CDLL(str(directory / "libonnxruntime_providers_shared.so"), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(directory / "libonnxruntime_providers_cuda.so"))
    except OSError as error:
        if "cannot open shared object" in str(error):
            return {"library_error": printable(str(error).split(": cannot open")[0], MAX_CHARS)}
    return {"cudnn": cudnn_version()}


def cudnn_version() -> str:
    """Return the version of cuDNN, "" when it is not there."""
    try:
        cudnn = ctypes.CDLL("libcudnn.so.9")
        cudnn.cudnnGetVersion.restype = ctypes.c_size_t
        number = int(cudnn.cudnnGetVersion())
    except (OSError, AttributeError):
        return ""
    return f"{number // 10_000}.{number % 10_000 // 100}.{number % 100}"


def first_run(index: int) -> Found:
    """Run one node on the GPU and nowhere else: onnxruntime would quietly take the CPU."""
    numpy, onnxruntime = importlib.import_module("numpy"), importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        session = onnxruntime.InferenceSession(ONE_NODE, options, providers=[(CUDA_PROVIDER, {"device_id": str(index)})])
        session.disable_fallback()
        (doubled,) = session.run(None, {"x": numpy.arange(4, dtype=numpy.float32)})
    except Exception as error:
        return {"session_error": said(error)}
    is_right = session.get_providers()[0] == CUDA_PROVIDER and doubled.tolist() == [0, 2, 4, 6]
    return {"session_error": "" if is_right else f"{session.get_providers()[0]} gave {doubled.tolist()}"}


def said(error: BaseException) -> str:
    """Return an exception as one short line."""
    return printable(" ".join(f"{type(error).__name__}: {error}".split()), MAX_CHARS)


def main(descriptor: int, index: int, parent: int) -> None:
    """Do step after step, and write to *descriptor*: before a step its name, after it what it found. Ends with its *parent*."""
    die_with_parent(parent)
    found: Found = {}
    with open(descriptor, "w", encoding="utf-8", buffering=1) as answers:
        for name, step in look(index):
            answers.write(json.dumps({"died_at": name}) + "\n")
            found |= step()
            answers.write(json.dumps({**found, "died_at": ""}) + "\n")
            if is_moot(found):
                break
    # Libraries may crash while they are unloaded, which says nothing.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
