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
from bench.order_stress import fake_engine, run_random
from schemas.tensors import NUMPY_NAME
from stages.detect import probe
from stages.device import Stream
from stages.device_choice import findings
from stages.engine import Engine
from stages.flight import Flight
from stages.gpu_kernel import options, source
from stages.resize import resize_rows

CAPABILITIES = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
STRESS_SEEDS, FAULTY_SEEDS = 200, 50


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


@check("cpu", limit_s=90)
def order_on_the_fake() -> Outcome:
    """The stress test of tier A on a fake device: no row is wrong in any order; with a wait left out each order shows it."""
    wrong = [text for seed in range(STRESS_SEEDS) for text in run_random(fake_engine, seed)]
    seen = sum(bool(run_random(lambda seed: fake_engine(seed, Impatient), seed)) for seed in range(FAULTY_SEEDS))
    figures = {"seeds": STRESS_SEEDS, "wrong": len(wrong), "faulty_seeds": FAULTY_SEEDS, "fault_seen": seen}
    return not wrong and seen == FAULTY_SEEDS, figures


class Impatient(Engine):
    """An engine with a planted fault: it computes without waiting for the upload."""

    def _compute(self, flight: Flight) -> None:
        self.device.run(flight.binding.call)
        self.device.record(Stream.COMPUTE, flight.computed)


@check("cpu", limit_s=100)
def probe_answers() -> Outcome:
    """The probe comes to its end on this machine; what it found is the figure."""
    facts = probe(0)
    reasons = [finding.reason for finding in findings(facts)]
    return not facts.died_at, {"facts": dataclasses.asdict(facts), "findings": reasons}
