"""onnxruntime on a real GPU, without the engine: what its streams, searches, precision and memory do. Tier B."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.gpu import cuda
from bench.gpu.network import write_network
from bench.gpu.registry import Outcome, check
from stages.device_choice import CUDA_PROVIDER

BUCKETS = (32, 16, 8, 4, 2, 1)
MAX_SUBMIT_SHARE, MAX_WARM_RATIO, MAX_STRICT_ERROR = 0.3, 1.2, 1e-4
FLAT_BATCHES = 10_000
SLOW_MS = 20.0
SMALL_WIDTH = 8

Floats = NDArray[np.float32]


class Session:
    """A session on GPU 0 with bindings to device memory that is ours."""

    def __init__(self, cupy: Any, path: Path, stream: Any = None, *, profile: str = "", **options: str) -> None:
        self._onnxruntime = load()
        settings = self._onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        if profile:
            settings.enable_profiling = True
            settings.profile_file_prefix = profile
        if options.get("use_tf32") == "0":
            settings.add_session_config_entry("session.use_deterministic_compute", "1")
        given = {"device_id": "0", "cudnn_conv_algo_search": "HEURISTIC", **options}
        if stream is not None:
            given["user_compute_stream"] = str(stream.ptr)
        self.session = self._onnxruntime.InferenceSession(str(path), settings, providers=[(CUDA_PROVIDER, given)])
        self.session.disable_fallback()
        self._cupy, self._side = cupy, self.session.get_inputs()[0].shape[2]
        self.quiet = self._onnxruntime.RunOptions()
        self.quiet.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def bind(self, rows: int) -> tuple[Any, Any, Any]:
        """Return (binding, input, output) for a batch."""
        cupy = self._cupy
        given = cupy.zeros((rows, 3, self._side, self._side), cupy.float32)
        classes = self.session.get_outputs()[0].shape[1]
        made = cupy.zeros((rows, classes), cupy.float32)
        binding = self.session.io_binding()
        binding.bind_input("image", "cuda", 0, np.float32, given.shape, given.data.ptr)
        binding.bind_output("scores", "cuda", 0, np.float32, made.shape, made.data.ptr)
        cupy.cuda.Device(0).synchronize()
        return binding, given, made

    def nodes(self) -> dict[str, int]:
        """Return how many nodes each provider runs."""
        counts: dict[str, int] = {}
        for part in self.session.get_provider_graph_assignment_info():
            counts[part.ep_name] = counts.get(part.ep_name, 0) + len(part.get_nodes())
        return counts


def load() -> Any:
    """Return onnxruntime with CUDA's libraries loaded.

    Raises:
        RuntimeError: it has no CUDA.
    """
    import onnxruntime

    if CUDA_PROVIDER not in onnxruntime.get_available_providers():
        raise RuntimeError(f"onnxruntime {onnxruntime.__version__} has no CUDA: pip install 'slotline[gpu]'")
    onnxruntime.preload_dlls()
    return onnxruntime


def network(**shape: Any) -> Path:
    """Write the network, or a small one, to a temporary file."""
    descriptor, name = tempfile.mkstemp(suffix=".onnx", prefix="gpu_check_")
    os.close(descriptor)
    return write_network(Path(name), **shape)


def small_network() -> Path:
    """Return a network that runs in well under a millisecond."""
    return network(width=SMALL_WIDTH, blocks=(1, 1), side=32, classes=10)


def random_images(rows: int, side: int) -> Floats:
    """Return random pictures as a model takes them."""
    return np.random.default_rng(rows).standard_normal((rows, 3, side, side)).astype(np.float32)


def on_cpu(path: Path, images: Floats) -> Floats:
    """Return the CPU's scores."""
    (scores,) = load().InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"image": images})
    result: Floats = scores
    return result


@check("B", limit_s=60)
def ort_provider_real() -> Outcome:
    """The session is on CUDA, all nodes are, and its profile names kernels that ran there."""
    cupy, path = cuda.load(), small_network()
    session = Session(cupy, path, profile=str(path.with_suffix("")))
    binding, _, _ = session.bind(2)
    session.session.run_with_iobinding(binding)
    providers, nodes = session.session.get_providers(), session.nodes()
    events = json.loads(Path(session.session.end_profiling()).read_text())
    ran = [event["name"] for event in events if event.get("args", {}).get("provider") == CUDA_PROVIDER]
    return providers[0] == CUDA_PROVIDER and bool(ran), {"providers": providers, "nodes": nodes, "cuda_kernels": len(ran)}


@check("B", limit_s=60)
def ort_stream_order() -> Outcome:
    """A run behind slow work on our stream reads what that work wrote; without our stream it is told what happens."""
    cupy, path = cuda.load(), small_network()
    images = random_images(4, 32)
    expected = on_cpu(path, images)
    found = {}
    for name, ours in (("our_stream", True), ("its_own_stream", False)):
        stream = cupy.cuda.Stream(non_blocking=True)
        session = Session(cupy, path, stream if ours else None, use_tf32="0")
        binding, given, made = session.bind(4)
        session.session.run_with_iobinding(binding)
        later = cupy.asarray(images)
        cupy.cuda.Device(0).synchronize()
        cuda.slow_copy(cupy, stream, later, given, SLOW_MS)
        session.session.run_with_iobinding(binding, session.quiet)
        cupy.cuda.Device(0).synchronize()
        found[name] = float(np.abs(made.get() - expected).max())
    return found["our_stream"] <= 1e-3, {"largest_difference": found, "slow_ms": SLOW_MS}


@check("B", limit_s=60)
def ort_async() -> Outcome:
    """With the sync switched off a run returns long before the GPU is through with it."""
    cupy, path = cuda.load(), network()
    stream = cupy.cuda.Stream(non_blocking=True)
    session = Session(cupy, path, stream)
    binding, _, _ = session.bind(32)
    for _ in range(3):
        session.session.run_with_iobinding(binding)
    figures = {}
    for name, options in (("with_sync", None), ("without_sync", session.quiet)):
        submitted, total = [], []
        for _ in range(10):
            started = time.perf_counter()
            session.session.run_with_iobinding(binding, options)
            submitted.append(time.perf_counter() - started)
            stream.synchronize()
            total.append(time.perf_counter() - started)
        figures[name] = {"submit_ms": _median_ms(submitted), "gpu_ms": _median_ms(total)}
    share = figures["without_sync"]["submit_ms"] / figures["without_sync"]["gpu_ms"]
    return share <= MAX_SUBMIT_SHARE, {**figures, "submit_share": round(share, 3)}


def _median_ms(seconds: list[float]) -> float:
    return round(1000 * float(np.median(seconds)), 3)


@check("B", limit_s=110)
def ort_buckets() -> Outcome:
    """Milliseconds of the first and of a warm run of each batch size, by how convolutions are searched."""
    cupy, path = cuda.load(), network()
    table: dict[str, dict[int, dict[str, float]]] = {}
    for search in ("HEURISTIC", "EXHAUSTIVE"):
        session = Session(cupy, path, cudnn_conv_algo_search=search)
        table[search] = {rows: _cold_and_warm(session, rows) for rows in BUCKETS}
    best = {rows: min(table[search][rows]["warm_ms"] for search in table) for rows in BUCKETS}
    ratio = max(table["HEURISTIC"][rows]["warm_ms"] / best[rows] for rows in BUCKETS)
    return ratio <= MAX_WARM_RATIO, {"ms": table, "heuristic_to_best": round(ratio, 3), "graphs": "not built"}


def _cold_and_warm(session: Session, rows: int) -> dict[str, float]:
    binding, _, _ = session.bind(rows)
    times = []
    for _ in range(12):
        started = time.perf_counter()
        session.session.run_with_iobinding(binding)
        times.append(time.perf_counter() - started)
    return {"cold_ms": round(1000 * times[0], 2), "warm_ms": _median_ms(times[2:])}


@check("B", limit_s=60)
def ort_tf32_strict() -> Outcome:
    """Strict results are the CPU's within 1e-4, and a batch that runs again gives the same bits; TF32's distance is told."""
    cupy, path = cuda.load(), network(blocks=(2, 2))
    images = random_images(8, 224)
    expected = on_cpu(path, images)
    scale, errors, repeats = float(np.abs(expected).max()), {}, {}
    for name, tf32 in (("strict", "0"), ("fast", "1")):
        session = Session(cupy, path, use_tf32=tf32)
        binding, given, made = session.bind(8)
        given.set(images)
        cupy.cuda.Device(0).synchronize()
        runs = []
        for _ in range(3):
            session.session.run_with_iobinding(binding)
            runs.append(made.get())
        errors[name] = float(np.abs(runs[0] - expected).max()) / scale
        repeats[name] = all(np.array_equal(run.view(np.uint32), runs[0].view(np.uint32)) for run in runs)
    well = errors["strict"] <= MAX_STRICT_ERROR and repeats["strict"]
    return well, {"relative_error": errors, "same_bits_again": repeats}


@check("B", limit_s=90)
def ort_memory_flat() -> Outcome:
    """After a warm-up, thousands of batches of all sizes take no more of the GPU's memory."""
    cupy, path = cuda.load(), small_network()
    session = Session(cupy, path, gpu_mem_limit=str(1 << 30), arena_extend_strategy="kSameAsRequested")
    bindings = [session.bind(rows)[0] for rows in BUCKETS]
    for binding in bindings * 3:
        session.session.run_with_iobinding(binding)
    free = cupy.cuda.runtime.memGetInfo()[0]
    for number in range(FLAT_BATCHES):
        session.session.run_with_iobinding(bindings[number % len(bindings)])
    change = free - cupy.cuda.runtime.memGetInfo()[0]
    return change == 0, {"batches": FLAT_BATCHES, "change_bytes": change}
