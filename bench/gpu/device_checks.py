"""The engine on a real device with models of cupy's own, and the preprocess kernel: tier A."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu import cuda
from bench.gpu.cpu_checks import Impatient
from bench.gpu.pictures import SPECS, pictures_for
from bench.gpu.registry import Outcome, check
from bench.order_stress import FLIGHTS, MAX_BATCH_SIZE, run_random
from schemas.tensors import NUMPY_NAME, DType
from stages.device import Stream
from stages.engine import Engine
from stages.flight import Flight
from stages.resize import Pixels, ResizeSpec, describe_row, resize_rows

MIB = 1 << 20
POOL_BYTES = 1 << 30
# The longest of copies and computing bounds a pipeline; the rest must hide behind it.
MAX_OVERLAP = 1.15
OVERLAP_ROWS, OVERLAP_WIDTH, OVERLAP_BATCHES = 8, 1 << 20, 40
STRESS_SECONDS, STRESS_BATCHES, STRESS_TOTAL, FAULTY_SEEDS = 45.0, 200, 10_000, 10
FLAT_BATCHES = 10_000
MAX_KERNEL_US = 100.0


def make_device(pool_bytes: int = POOL_BYTES) -> Any:
    """Return a device on GPU 0; nothing without a GPU loads its module."""
    from stages.device_cuda import CudaDevice

    return CudaDevice(0, pool_bytes=pool_bytes)


def busy_engine(cupy: Any, *, flights: int, turns: int) -> Engine:
    """Return an engine whose batches are 32 MiB up, 32 MiB down and as much work between as *turns* say."""
    from bench.gpu.cuda_models import BusyModel

    model = BusyModel(cupy, OVERLAP_WIDTH, turns)
    return Engine(model, make_device(), max_batch_size=OVERLAP_ROWS, flights=flights)


@check("A", limit_s=60)
def overlap() -> Outcome:
    """Three flights of batches take hardly longer than the longest of copying up, computing and copying down takes alone."""
    cupy = cuda.load()
    engine = busy_engine(cupy, flights=3, turns=2000)
    parts = _alone_ms(engine)
    started = time.perf_counter()
    for _ in range(OVERLAP_BATCHES):
        if not engine.has_room:
            engine.wait()
            engine.release(engine.land())
        engine.launch(engine.open(OVERLAP_ROWS, ((OVERLAP_WIDTH,),)))
    for _ in range(3):
        engine.wait()
        engine.release(engine.land())
    wall_ms = (time.perf_counter() - started) * 1000 / OVERLAP_BATCHES
    ratio = wall_ms / max(parts.values())
    return ratio <= MAX_OVERLAP, {"alone_ms": parts, "wall_ms": round(wall_ms, 3), "ratio": round(ratio, 3)}


def _alone_ms(engine: Engine) -> dict[str, float]:
    """Return what each part of a batch takes when nothing else is under way, warm."""
    device, flight = engine.device, engine.open(OVERLAP_ROWS, ((OVERLAP_WIDTH,),))
    (given,), (made,) = flight.binding.bound.values(), flight.binding.written
    works = {
        Stream.UPLOAD: lambda: device.upload(given.block, given.nbytes),
        Stream.COMPUTE: lambda: device.run(flight.binding.call),
        Stream.DOWNLOAD: lambda: device.download(made.block, made.nbytes),
    }
    taken = {}
    for stream, work in works.items():
        for repeats in (3, OVERLAP_BATCHES):
            started = time.perf_counter()
            for _ in range(repeats):
                work()
            mark = device.new_mark()
            device.record(stream, mark)
            device.wait(mark)
            taken[stream.name.lower()] = round((time.perf_counter() - started) * 1000 / repeats, 3)
    engine.release(flight)
    return taken


class HeldUp(Impatient):
    """The engine that does not wait for the upload, with uploads that take longer than a launch."""

    def _upload(self, flight: Flight) -> None:
        device = self.device
        if not hasattr(self, "_ballast"):
            self._ballast = device.block(64 * MIB)
        device.upload(self._ballast, 64 * MIB)
        super()._upload(flight)


@check("A", limit_s=110)
def order_stress() -> Outcome:
    """Random batches, each answer compared: no row is wrong; with a wait left out the same test sees it."""
    from bench.gpu.cuda_models import CudaSumModel

    cupy = cuda.load()

    def engine(_seed: int, kind: type[Engine] = Engine) -> Engine:
        return kind(CudaSumModel(cupy), make_device(256 * MIB), max_batch_size=MAX_BATCH_SIZE, flights=FLIGHTS)

    until, done, wrong = time.monotonic() + STRESS_SECONDS, 0, []
    while done < STRESS_TOTAL and time.monotonic() < until:
        wrong += run_random(engine, seed=done, batches=STRESS_BATCHES)
        done += STRESS_BATCHES
    seen = sum(bool(run_random(lambda seed: engine(seed, HeldUp), seed=s)) for s in range(FAULTY_SEEDS))
    figures = {"batches": done, "wrong": len(wrong), "first": wrong[:2], "faulty_runs": FAULTY_SEEDS, "fault_seen": seen}
    return not wrong and seen > 0, figures


@check("A", limit_s=60)
def kernel() -> Outcome:
    """The kernel gives the bits of its numpy twin, and 32 pictures of 640x480 take at most 100 us."""
    cupy = cuda.load()
    different = {f"{spec.channels}x{spec.dtype.name}": _different(cupy, spec) for spec in SPECS}
    us = _batch_us(cupy)
    sanitizer = _sanitize() if shutil.which("compute-sanitizer") else "compute-sanitizer is not installed"
    figures = {"different_values": different, "us_for_32": round(us, 1), "sanitizer": sanitizer}
    return not any(different.values()) and us <= MAX_KERNEL_US and sanitizer != "findings", figures


@check("tool", limit_s=60)
def kernel_once() -> Outcome:
    """The kernel's results alone: what the sanitizer runs."""
    cupy = cuda.load()
    return not any(_different(cupy, spec) for spec in SPECS), {}


def _different(cupy: Any, spec: ResizeSpec) -> int:
    """Return how many values of the GPU's result have other bits than the twin's."""
    pictures = pictures_for(spec)
    there = [None if p is None else cupy.asarray(np.ascontiguousarray(p)) for p in pictures]
    dims = [(0, 0, 0) if p is None else (*p.shape[:2], p.strides[0]) for p in there]
    sources = cupy.array([0 if p is None else p.data.ptr for p in there], cupy.uint64)
    out = cupy.full((len(pictures), *spec.shape), 7, NUMPY_NAME[spec.dtype])
    given = cupy.array(dims, cupy.int32)
    cuda.resize_kernel(cupy, spec).launch(
        sources_ptr=sources.data.ptr, dims_ptr=given.data.ptr, out_ptr=out.data.ptr, rows=len(pictures)
    )
    twin = np.empty(out.shape, NUMPY_NAME[spec.dtype])
    resize_rows(spec, pictures, twin)
    bits = np.uint32 if spec.dtype is DType.FP32 else np.uint16
    return int(np.count_nonzero(out.get().view(bits) != twin.view(bits)))


def _batch_us(cupy: Any) -> float:
    """Return the microseconds of one launch for 32 pictures of 640x480 that lie on the GPU."""
    spec, stream = SPECS[0], cupy.cuda.Stream(non_blocking=True)
    pixels = cupy.asarray(np.random.default_rng(0).integers(0, 256, (32, 480, 640, 3), np.uint8))
    example: Pixels = np.empty((480, 640, 3), np.uint8)
    sources = cupy.arange(32, dtype=cupy.uint64) * cupy.uint64(example.nbytes) + cupy.uint64(pixels.data.ptr)
    dims, out = cupy.array([describe_row(example)[1:]] * 32, cupy.int32), cupy.empty((32, *spec.shape), cupy.float32)
    run = cuda.resize_kernel(cupy, spec)
    cupy.cuda.Device(0).synchronize()
    with stream:
        return 1000 * cuda.gpu_ms(
            cupy,
            stream,
            lambda: run.launch(sources_ptr=sources.data.ptr, dims_ptr=dims.data.ptr, out_ptr=out.data.ptr, rows=32),
            repeats=100,
        )


def _sanitize() -> str:
    """Return "clean", or "findings" when compute-sanitizer has any about the kernel."""
    command = ["compute-sanitizer", "--error-exitcode", "9", sys.executable, "-m", "bench.gpu_check"]
    with tempfile.TemporaryDirectory() as directory:
        child = [*command, "--child", "kernel_once", "--out", str(Path(directory) / "result.json")]
        run = subprocess.run(child, capture_output=True, timeout=50, check=False)
    return "clean" if run.returncode == 0 else "findings"


@check("A", limit_s=60)
def pool_flat() -> Outcome:
    """After a warm-up, thousands of batches of all sizes take no more memory, on the device or pinned."""
    from bench.gpu.cuda_models import CudaSumModel
    from bench.order_stress import SHAPES

    cupy = cuda.load()
    engine = Engine(CudaSumModel(cupy), make_device(), max_batch_size=MAX_BATCH_SIZE, flights=FLIGHTS)
    engine.warm_up(SHAPES)

    def taken() -> tuple[int, int, int]:
        return engine.device.pool_bytes, engine.device.pinned_bytes, cupy.cuda.runtime.memGetInfo()[0]

    before = taken()
    for number in range(FLAT_BATCHES):
        if not engine.has_room:
            engine.wait()
            engine.release(engine.land())
        engine.launch(engine.open(number % MAX_BATCH_SIZE + 1, SHAPES))
    engine.wait()
    return before == taken(), {"batches": FLAT_BATCHES, "before": before, "after": taken()}


@check("A")
def pool_limit() -> Outcome:
    """What does not fit into the pool is an error, and the device works on."""
    cuda.load()
    device = make_device(64 * MIB)
    try:
        device.block(1 << 30)
    except MemoryError as error:
        told = f"{type(error).__name__}: {error}"[:200]
    else:
        return False, {"error": "none: 1 GiB fits into a pool of 64 MiB"}
    block = device.block(MIB)
    block.host[:] = 42
    mark = device.new_mark()
    device.upload(block, MIB)
    device.record(Stream.UPLOAD, mark)
    device.wait(mark)
    return True, {"error": told, "pool_bytes": device.pool_bytes}
