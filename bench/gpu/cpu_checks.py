"""What can be checked without a GPU: the kernel's arithmetic and compilation, the engine's order, what the probe says."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np

from bench.gpu.nvrtc import DISTRIBUTIONS, Nvrtc, find_library
from bench.gpu.pictures import SPECS, pictures_for
from bench.gpu.registry import Outcome, Skipped, check
from bench.gpu.shim import Shim, compile_shim, has_compiler
from schemas.tensors import NUMPY_NAME
from stages.detect import probe
from stages.device_choice import findings
from stages.gpu_kernel import options, source
from stages.resize import resize_rows

CAPABILITIES = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
STRESS_SEEDS = 200


@check("cpu")
def kernel_shim() -> Outcome:
    """The kernel's source as C++ gives the bits of its numpy twin."""
    if not has_compiler():
        raise Skipped("no g++")
    with tempfile.TemporaryDirectory() as directory:
        shim = Shim(compile_shim(Path(directory)))
        different = 0
        for spec in SPECS:
            pictures = pictures_for(spec)
            ours, twin = (np.empty((len(pictures), *spec.shape), NUMPY_NAME[spec.dtype]) for _ in range(2))
            shim.rows(spec, pictures, ours)
            resize_rows(spec, pictures, twin)
            different += int(np.count_nonzero(ours.view(np.uint8) != twin.view(np.uint8)))
    return different == 0, {"specs": len(SPECS), "different_bytes": different}


@check("cpu", limit_s=90)
def kernel_compiles() -> Outcome:
    """NVRTC makes machine code of it for each generation of GPUs."""
    library = find_library()
    if library is None:
        raise Skipped(f"none of {', '.join(DISTRIBUTIONS)} is installed")
    compiler = Nvrtc(library)
    sizes = {f"sm_{major}{minor}": len(compiler.compile(source(), options(major, minor))) for major, minor in CAPABILITIES}
    return all(sizes.values()), {"nvrtc": compiler.version, "code_bytes": sizes}


@check("cpu", limit_s=100)
def probe_answers() -> Outcome:
    """The probe comes to its end on this machine; what it found is the figure."""
    facts = probe(0)
    reasons = [finding.reason for finding in findings(facts)]
    return not facts.died_at, {"facts": dataclasses.asdict(facts), "findings": reasons}
