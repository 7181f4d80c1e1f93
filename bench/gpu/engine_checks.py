"""The whole engine on a real GPU: its rate and latency beside a bare loop, and a death in mid-batch. Tier B."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu import crash, cuda, session_checks
from bench.gpu.loops import fill, per_second, percentiles_us, pipelined, take
from bench.gpu.registry import Outcome, check
from schemas.config import GpuConfig, LaneConfig, StageConfig
from stages.engine import Engine

ROWS, SIDE, SECONDS, BATCHES_AT_ONCE = 32, 224, 3.0, 12
MIN_RATIOS = {"of_bare": 0.90, "of_naive": 1.3, "pictures_of_bare": 0.85}
MAX_COLD_S = 10.0
LATENCY_RUNS = 2000
MAX_ADDED_US = {"p50": 80.0, "p99": 200.0}
GIB = 1 << 30


def make_engine(path: Path, *, rows: int, flights: int = 2, resizes: bool = False) -> Engine:
    """Return the engine that a lane on GPU 0 has for this model; with *resizes* it takes uint8 pictures of the model's size."""
    from stages.cuda_engine import make_cuda_engine

    gpu = GpuConfig(pool_bytes=2 * GIB, ort_bytes=8 * GIB, flights=flights)
    lane = LaneConfig("check", model=path, device="cuda", gpu=gpu)
    if resizes:
        decode = StageConfig("image", {"color": "rgb", "depth": 8})
        resize = StageConfig("resize", {"height": 0, "width": 0, "mean": (0.0,), "scale": (1 / 255,)})
        lane = dataclasses.replace(lane, max_pixels=SIDE * SIDE, decode=decode, preprocess=resize)
    return make_cuda_engine(lane, rows)


@check("B", limit_s=100)
def engine_ratio() -> Outcome:
    """Images per second of the engine, floats or pictures in registered slots, beside a bare loop and plain run() calls."""
    rates = measure_rates()
    well = all(rates[name] >= least for name, least in MIN_RATIOS.items()) and rates["cold_s"] <= MAX_COLD_S
    return well, rates


def measure_rates() -> dict[str, float]:
    """Return images per second of each side, the ratios, and the seconds until the engine was warm."""
    cupy, path = cuda.load(), session_checks.network()
    images = session_checks.random_images(ROWS, SIDE)
    started = time.perf_counter()
    engine, slots = _warm(path, images, resizes=False)
    cold_s = time.perf_counter() - started
    chain, pictures = _warm(path, np.random.default_rng(0).integers(0, 256, (ROWS, SIDE, SIDE, 3), np.uint8), resizes=True)
    session = session_checks.Session(cupy, path)
    binding, given, _ = session.bind(ROWS)
    given.set(images)
    cupy.cuda.Device(0).synchronize()
    several = ROWS * BATCHES_AT_ONCE
    sides: dict[str, tuple[Callable[[], object], int]] = {
        "bare": (lambda: session.session.run_with_iobinding(binding), ROWS),
        "naive": (lambda: session.session.run(None, {"image": images}), ROWS),
        "engine": (lambda: pipelined(engine, [slots] * BATCHES_AT_ONCE), several),
        "pictures": (lambda: pipelined(chain, [pictures] * BATCHES_AT_ONCE), several),
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for order in (list(sides), list(reversed(sides))):
        for name in order:
            work, items = sides[name]
            rates[name].append(per_second(work, items=items, seconds=SECONDS))
    mean = {name: round(sum(values) / len(values), 1) for name, values in rates.items()}
    return {**mean, **_ratios(mean), "cold_s": round(cold_s, 2)}


def _warm(path: Path, images: Any, *, resizes: bool) -> tuple[Engine, list[Any]]:
    """Return a warm engine, and the images in memory that it has registered."""
    memory, _ = cuda.slab(images.nbytes)
    slots = memory.view(images.dtype).reshape(images.shape)
    slots[:] = images
    engine = make_engine(path, rows=ROWS, resizes=resizes)
    engine.warm_up()
    engine.adopt(memory)
    return engine, list(slots)


def _ratios(mean: dict[str, float]) -> dict[str, float]:
    pairs = {"of_bare": ("engine", "bare"), "of_naive": ("engine", "naive"), "pictures_of_bare": ("pictures", "bare")}
    return {name: round(mean[ours] / mean[limit], 3) for name, (ours, limit) in pairs.items()}


@check("B", limit_s=60)
def engine_latency() -> Outcome:
    """Microseconds that the engine adds to one row: slot to result, less a bare upload, run and download on one stream."""
    cupy, path = cuda.load(), session_checks.small_network()
    image = session_checks.random_images(1, 32)
    bare = percentiles_us(_bare_round(cupy, path, image), times=LATENCY_RUNS)
    memory, _ = cuda.slab(4096 * 4)
    slot = memory[: image.nbytes].view(np.float32).reshape(image.shape[1:])
    slot[:] = image[0]
    figures: dict[str, Any] = {"bare_us": bare}
    for mode in ("spin", "block"):
        engine = make_engine(path, rows=1, flights=1)
        engine.warm_up()
        engine.adopt(memory)

        def one(engine: Engine = engine, spins: bool = mode == "spin") -> None:
            fill(engine, [slot])
            take(engine, spin=spins)

        figures[f"{mode}_us"] = percentiles_us(one, times=LATENCY_RUNS)
        engine.close()
    added = {name: round(figures["spin_us"][name] - bare[name], 1) for name in bare}
    return all(added[name] <= most for name, most in MAX_ADDED_US.items()), {**figures, "added_us": added}


def _bare_round(cupy: Any, path: Path, image: Any) -> Callable[[], None]:
    """Return a function that copies in, runs and copies out on one stream, and waits."""
    stream, runtime = cupy.cuda.Stream(non_blocking=True), cupy.cuda.runtime
    session = session_checks.Session(cupy, path, stream)
    binding, given, made = session.bind(1)
    host_in, host_out = cuda.pinned(cupy, image.nbytes), cuda.pinned(cupy, made.nbytes)
    host_in[:] = image.reshape(-1).view(np.uint8)

    def run() -> None:
        runtime.memcpyAsync(given.data.ptr, host_in.ctypes.data, given.nbytes, runtime.memcpyHostToDevice, stream.ptr)
        session.session.run_with_iobinding(binding, session.quiet)
        runtime.memcpyAsync(host_out.ctypes.data, made.data.ptr, made.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
        stream.synchronize()

    return run


@check("B", limit_s=110)
def crash_restart() -> Outcome:
    """kill -9 in mid-batch, twice: the process starts again, each request has its result, no process is left at the end."""
    return crash.kill_in_mid_batch("cuda", "libcuda.so")


@check("cpu", limit_s=110)
def crash_on_the_cpu() -> Outcome:
    """The same as crash_restart, with the model on the CPU."""
    return crash.kill_in_mid_batch("cpu", "onnxruntime_pybind11_state")
