"""What the engine adds to onnxruntime on the CPU: batches through it beside a bare IOBinding loop over the same model.

Both sides run the same rows, one round of each after the other; the ratio is taken per round. The engine's side gathers its rows
from an array as a lane does, and the bare loop runs on buffers that were bound once. Exit status 0 when both promises hold.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.pairs import Spread, ratios
from schemas.tensors import NUMPY_NAME
from stages.device_host import HostDevice
from stages.engine import Engine
from stages.onnx_model import open_session, read_model, session_options

DEMO = Path(__file__).parents[1] / "stages" / "demo"
# The first model takes at least 5 ms for a batch, the second some ten microseconds: the one shows the ratio, the other the cost.
LARGE, SMALL = DEMO / "surface_qc.onnx", DEMO / "trading_mlp.onnx"
LARGE_ROWS, LARGE_SHAPE = 4, (1, 192, 192)
SMALL_ROWS, SMALL_SHAPE = 32, (67,)
MIN_RATIO = 0.97
MAX_ADDED_US = 30.0
# Python objects that may be left over after so many batches: a few of the interpreter's own caches.
GROWTH_BATCHES, MAX_GROWTH_BYTES = 10_000, 16_384


def bare_loop(path: Path, rows: np.ndarray[Any, Any]) -> Callable[[], None]:
    """Return a function that runs the model once on buffers bound at the beginning."""
    session = open_session(path, session_options(threads=1, spin=False), ["CPUExecutionProvider"])
    io = session.io_binding()
    (source,) = session.get_inputs()
    io.bind_input(source.name, "cpu", 0, rows.dtype, rows.shape, rows.ctypes.data)
    names = [target.name for target in session.get_outputs()]
    outs = [np.empty_like(result) for result in session.run(names, {source.name: rows})]
    for name, out in zip(names, outs, strict=True):
        io.bind_output(name, "cpu", 0, out.dtype, out.shape, out.ctypes.data)

    def run() -> None:
        session.run_with_iobinding(io)
        assert outs  # the buffers live as long as this function

    return run


def engine_loop(path: Path, rows: np.ndarray[Any, Any], *, gathers: bool) -> Callable[[], None]:
    """Return a function that takes one batch through the engine; without *gathers* its rows lie there already."""
    engine = Engine(read_model(path, max_batch_size=len(rows)), HostDevice(), max_batch_size=len(rows))
    name, shapes = engine.inputs[0].name, (rows.shape[1:],)

    def run() -> None:
        flight = engine.open(len(rows), shapes)
        view = flight.inputs[name]
        if gathers:
            np.copyto(view, rows)
        engine.launch(flight)
        assert engine.has_landed
        engine.land().outputs()
        engine.release(flight)

    return run


def time_us(run: Callable[[], None], count: int) -> float:
    """Return what one of *count* runs took, in microseconds."""
    started_ns = time.perf_counter_ns()
    for _ in range(count):
        run()
    return (time.perf_counter_ns() - started_ns) / count / 1000


def interleaved(sides: dict[str, Callable[[], None]], *, rounds: int, count: int) -> dict[str, list[float]]:
    """Return the microseconds of one run of each side in each round; the order changes from round to round."""
    names = list(sides)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        time_us(sides[name], count)
    for number in range(rounds):
        for name in names if number % 2 else reversed(names):
            figures[name].append(time_us(sides[name], count))
    return figures


def random_rows(path: Path, count: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return random rows for the only input of a model."""
    spec = read_model(path, max_batch_size=count).inputs[0]
    return np.random.default_rng(0).normal(size=(count, *shape)).astype(NUMPY_NAME[spec.dtype])


def measure_large(rounds: int) -> dict[str, Any]:
    """Return the rate of the engine, gather and all, as a share of the bare loop's."""
    rows = random_rows(LARGE, LARGE_ROWS, LARGE_SHAPE)
    sides = {"bare": bare_loop(LARGE, rows), "engine": engine_loop(LARGE, rows, gathers=True)}
    figures = interleaved(sides, rounds=rounds, count=10)
    share = Spread.of(ratios(figures["bare"], figures["engine"]))
    bare_us = Spread.of(figures["bare"])
    return {
        "batch_ms": round(bare_us.median / 1000, 2),
        "ratio": share.median,
        "spread": [share.least, share.most],
        "ok": share.median >= MIN_RATIO,
    }


def measure_small(rounds: int) -> dict[str, Any]:
    """Return what the engine adds to one batch beside the gather, in microseconds."""
    rows = random_rows(SMALL, SMALL_ROWS, SMALL_SHAPE)
    sides = {"bare": bare_loop(SMALL, rows), "engine": engine_loop(SMALL, rows, gathers=False)}
    figures = interleaved(sides, rounds=rounds, count=500)
    added = Spread.of([one - other for one, other in zip(figures["engine"], figures["bare"], strict=True)])
    return {
        "bare_us": Spread.of(figures["bare"]).median,
        "added_us": added.median,
        "spread": [added.least, added.most],
        "ok": added.median <= MAX_ADDED_US,
    }


def measure_growth() -> dict[str, Any]:
    """Return how many bytes of Python objects are left over after many batches of changing sizes."""
    rows = random_rows(SMALL, SMALL_ROWS, SMALL_SHAPE)
    engine = Engine(read_model(SMALL, max_batch_size=SMALL_ROWS), HostDevice(), max_batch_size=SMALL_ROWS)
    for count in range(1, SMALL_ROWS + 1):
        engine.call({engine.inputs[0].name: rows[:count]})
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(GROWTH_BATCHES):
        flight = engine.open(number % SMALL_ROWS + 1, (SMALL_SHAPE,))
        engine.launch(flight)
        engine.land().outputs()
        engine.release(flight)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"batches": GROWTH_BATCHES, "left_bytes": after - before, "ok": after - before <= MAX_GROWTH_BYTES}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure from the command line; prints one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each pair (default 15)")
    rounds = parser.parse_args(argv).rounds
    found = {"large": measure_large(rounds), "small": measure_small(rounds), "growth": measure_growth()}
    print(json.dumps(found))
    return 0 if all(part["ok"] for part in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
