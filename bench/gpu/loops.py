"""Batches through the engine and beside it, timed. Nothing here knows the device: the tests run the same loops on the CPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stages.engine import Engine

Array: TypeAlias = NDArray[Any]


def fill(engine: Engine, rows: Sequence[Array]) -> None:
    """Send one batch on its way: rows from where they lie if the device reads them there, else gathered."""
    name = engine.inputs[0].name
    flight = engine.open(len(rows), (rows[0].shape,))
    if not engine.upload_rows(flight, name, rows):
        np.stack(rows, out=flight.inputs[name])
    engine.launch(flight)


def take(engine: Engine, *, spin: bool) -> Array:
    """Wait for the oldest batch and return a copy of its first output."""
    if spin:
        while not engine.has_landed:
            pass
    else:
        engine.wait()
    flight = engine.land()
    result: Array = next(iter(flight.outputs().values())).copy()
    engine.release(flight)
    return result


def pipelined(engine: Engine, batches: Sequence[Sequence[Array]]) -> list[Array]:
    """Return the first output of each batch; as many are on their way as the engine takes."""
    results, on_way = [], 0
    for rows in batches:
        while not engine.has_room:
            results.append(take(engine, spin=False))
            on_way -= 1
        fill(engine, rows)
        on_way += 1
    return results + [take(engine, spin=False) for _ in range(on_way)]


def per_second(work: Callable[[], object], *, items: int, seconds: float) -> float:
    """Return items per second of *work*, which does *items* of them, repeated for about so long."""
    work()
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        work()
        done += items
    return done / (time.perf_counter() - started)


def percentiles_us(work: Callable[[], object], *, times: int) -> dict[str, float]:
    """Return the median and the 99th percentile of one call in microseconds."""
    work()
    taken = []
    for _ in range(times):
        started_ns = time.perf_counter_ns()
        work()
        taken.append((time.perf_counter_ns() - started_ns) / 1000)
    return {"p50": round(float(np.percentile(taken, 50)), 1), "p99": round(float(np.percentile(taken, 99)), 1)}
