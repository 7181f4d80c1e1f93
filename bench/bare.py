"""The same work without a server: decode, preprocess and run in a loop; a model's bare run; a copy of memory.

``python -m bench.bare`` is a process that does what it is told, one JSON object a line, and answers in the same form; so it
can be started once and measured in turn with the servers. Nothing here is Slotline's but the embedded pipeline and the client
that hands frames over, measured so, and the functions of the lanes.
"""

from __future__ import annotations

import io
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.lanes import PHOTO_PIXELS, photo_row
from schemas.spawn import die_with_parent

# Timed calls of one side before the other has its turn.
BLOCK = 200
WARM_UP_S = 0.3


def main() -> int:
    """Answer orders until the end of standard input."""
    die_with_parent(int(sys.argv[1]))
    loops: dict[str, Any] = {}
    print("ready bare", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(_DO[order.pop("do")](loops, **order)), flush=True)
    return 0


def _loop(loops: dict[str, Any], *, workload: str, model: str, seconds: float) -> dict[str, float]:
    """Decode, preprocess and run one input after the other; return how many a second."""
    if workload not in loops:
        from bench.workloads import part, photos

        loops[workload] = _photo_loop(model, photos()) if workload == "photo" else _part_loop(model, part().rows)
    step = loops[workload]
    _repeat(step, WARM_UP_S)
    count, elapsed_s = _repeat(step, seconds)
    return {"rate": count / elapsed_s}


def _repeat(step: Callable[[], object], seconds: float) -> tuple[int, float]:
    """Call *step* for *seconds*; return how often, and the time that it took."""
    start = now = time.perf_counter()
    count = 0
    while now < start + seconds:
        step()
        count += 1
        now = time.perf_counter()
    return count, now - start


def _part_loop(model: str, rows: Sequence[Any]) -> Callable[[], object]:
    """Return what judges the next part: PNG to grey, standardised, run, the demo's verdict."""
    from PIL import Image

    from stages.demo.surface import verdict

    session = _session(model)
    pictures = [bytes(row["image"].content) for row in rows]
    outputs: dict[str, NDArray[Any]] = {
        "verdict": np.zeros(64, np.uint8),
        "score": np.zeros(1, np.float32),
        "boxes": np.zeros((32, 6), np.float32),
    }
    at = 0

    def step() -> None:
        nonlocal at
        with Image.open(io.BytesIO(pictures[at])) as picture:
            grey = np.asarray(picture.convert("L")).astype(np.float32)
        at = (at + 1) % len(pictures)
        grey -= grey.mean()
        grey /= np.maximum(grey.std(), np.float32(8))
        verdict({"prob": session.run(None, {"image": grey[None, None]})[0]}, outputs, None)

    return step


def _photo_loop(model: str, pictures: Sequence[bytes]) -> Callable[[], object]:
    """Return what classifies the next photo: JPEG to RGB, resized and normalised, run, the five best classes."""
    import simplejpeg

    from bench.lanes import top5

    session = _session(model)
    row = np.empty((1, 3, PHOTO_PIXELS, PHOTO_PIXELS), np.float32)
    outputs = {"classes": np.zeros(5, np.int32), "scores": np.zeros(5, np.float32)}
    name = session.get_inputs()[0].name
    at = 0

    def step() -> None:
        nonlocal at
        photo_row(simplejpeg.decode_jpeg(pictures[at], "RGB"), row[0])
        at = (at + 1) % len(pictures)
        top5({"logits": session.run(None, {name: row})[0]}, outputs, None)

    return step


def _batches(_: object, *, model: str, sizes: Sequence[int], seconds: float) -> dict[str, float]:
    """Run a model at each batch size; return the median microseconds of a row."""
    session = _session(model)
    node = session.get_inputs()[0]
    found = {}
    for size in sizes:
        rows = np.zeros((size, *node.shape[1:]), np.float32)
        times_ns: list[int] = []
        _repeat(partial(_time, partial(session.run, None, {node.name: rows}), times_ns), seconds)
        found[str(size)] = statistics.median(times_ns) / size / 1e3
    return found


def _embedded(_: object, *, config: str, lane: str, seconds: float) -> dict[str, float]:
    """Ask the embedded pipeline and the bare model for one tick at a time, in turn; return the median of each in microseconds."""
    from bench.workloads import tick_features
    from schemas.config import load_config
    from stages.pipeline import Pipeline

    loaded = load_config(Path(config))
    rows = [row[None] for row in tick_features()[:BLOCK]]
    session = _session(str(loaded.lanes[0].model))
    ours_ns: list[int] = []
    bare_ns: list[int] = []
    with Pipeline(loaded) as pipeline:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for row in rows:
                _time(partial(pipeline.infer, lane, {"features": row}), ours_ns)
            for row in rows:
                _time(partial(session.run, None, {"features": row}), bare_ns)
    return {"ours": statistics.median(ours_ns) / 1e3, "bare": statistics.median(bare_ns) / 1e3}


def _handover(loops: dict[str, Any], *, endpoint: str, seconds: float) -> dict[str, float]:
    """Hand a large and a small frame over in turn; return the median microseconds of each. The lease stays for the next round."""
    from bench.handover import HandOver
    from bench.workloads import handed_over

    if endpoint not in loops:
        workload = handed_over()
        loops[endpoint] = HandOver(endpoint, workload.lane, [row["frame"] for row in workload.rows])
    large_us, small_us = loops[endpoint].measure(seconds)
    return {"large": large_us, "small": small_us}


def _copy(_: object, *, nbytes: int, seconds: float) -> dict[str, float]:
    """Copy memory that is larger than the caches; return the median microseconds."""
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    times_ns: list[int] = []
    _repeat(partial(_time, partial(np.copyto, target, source), times_ns), seconds)
    return {"us": statistics.median(times_ns) / 1e3}


def _time(call: Callable[[], object], times_ns: list[int]) -> None:
    start_ns = time.perf_counter_ns()
    call()
    times_ns.append(time.perf_counter_ns() - start_ns)


def _session(model: str) -> Any:
    """Return a session of one thread, as the lanes have it: processes use cores better than threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


_DO: dict[str, Callable[..., dict[str, float]]] = {
    "loop": _loop,
    "batches": _batches,
    "embedded": _embedded,
    "handover": _handover,
    "copy": _copy,
}

if __name__ == "__main__":
    sys.exit(main())
