"""Whether a model's rows depend on the rows that share their batch: found out by running some alone and together.

A model quantised dynamically scales each batch as a whole, so that a request's answer depends on who else asks. That is the
model's doing and no error; but whoever relies on the same input giving the same answer must be told.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.status import RequestError
from schemas.tensors import NUMPY_NAME, DType, element_count

from .engine import OnnxEngine, RowShapes

Array = NDArray[Any]

# No new batch size is tried after this; one run is as long as it is.
LIMIT_NS = 1_000_000_000
# For dimensions that the model leaves open; models that need others are not judged.
EXAMPLE_DIM = 64
MAX_EXAMPLE_BYTES = 1 << 24
# NaN alone and a number together differ by as much as anything can.
MOST = 1e6
TINY = 1e-300


def batch_effects(engine: OnnxEngine, most_rows: int, *, limit_ns: int = LIMIT_NS) -> dict[str, float] | None:
    """Return the outputs whose bits depend on the other rows of a batch, and the largest difference seen of each.

    Random rows show a dependence; they cannot prove that there is none.

    Args:
        engine: takes batches of at least *most_rows*.
        limit_ns: after which no further batch size is tried.

    Returns:
        Output name -> largest difference as a part of the output's largest absolute value; None when it cannot be told: the
        model leaves shapes open and does not run with ours.
    """
    shapes = engine.row_shapes or _example_shapes(engine)
    if shapes is None:
        return None
    try:
        return _compare(engine, most_rows, shapes, time.monotonic_ns() + limit_ns)
    except RequestError:
        return None


def _compare(engine: OnnxEngine, most_rows: int, shapes: RowShapes, until_ns: int) -> dict[str, float]:
    rows = _random_rows(engine, most_rows, shapes)
    alone: list[Mapping[str, Array]] = []
    effects: dict[str, float] = {}
    for size in sorted({2, 3, most_rows // 2, most_rows} & set(range(2, most_rows + 1))):
        alone += [_run(engine, rows, slice(row, row + 1), shapes) for row in range(len(alone), size)]
        together = _run(engine, rows, slice(0, size), shapes)
        for spec in engine.outputs:
            singles = [one[spec.name][0] for one in alone]
            found = max(map(_difference, singles, together[spec.name], [spec.dtype] * size))
            if found:
                effects[spec.name] = max(effects.get(spec.name, 0.0), found)
        if time.monotonic_ns() > until_ns:
            break
    return effects


def _run(engine: OnnxEngine, rows: Mapping[str, Array], part: slice, shapes: RowShapes) -> dict[str, Array]:
    """Return copies of the outputs of the rows of *part*, run as one batch."""
    count = part.stop - part.start
    for name, view in engine.input_views(count, shapes).items():
        np.copyto(view, rows[name][part])
    return {name: array.copy() for name, array in engine.run(count, shapes).items()}


def _random_rows(engine: OnnxEngine, count: int, shapes: RowShapes) -> dict[str, Array]:
    """Return *count* random rows for each input: normal floats; 0 or 1 for integers, which are often indices."""
    rng = np.random.default_rng(0)
    rows: dict[str, Array] = {}
    for spec, shape in zip(engine.inputs, shapes, strict=True):
        values = rng.normal(size=(count, *shape))
        if spec.dtype is DType.BF16:
            rows[spec.name] = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        else:
            dtype = np.dtype(NUMPY_NAME[spec.dtype])
            rows[spec.name] = (values if dtype.kind == "f" else values > 0).astype(dtype)
    return rows


def _example_shapes(engine: OnnxEngine) -> RowShapes | None:
    """Return shapes with a number for each open dimension; None when these are too large to be tried."""
    shapes = tuple(tuple(EXAMPLE_DIM if dim < 0 else dim for dim in spec.shape[1:]) for spec in engine.inputs)
    return None if max(map(element_count, shapes), default=0) * 8 > MAX_EXAMPLE_BYTES else shapes


def _numbers(array: Array, dtype: DType) -> Array:
    """Return *array* as numbers that can be subtracted."""
    if dtype is DType.BF16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def _difference(alone: Array, together: Array, dtype: DType) -> float:
    """Return the largest difference as a part of the largest absolute value; 0.0 for the same bits."""
    if alone.shape == together.shape and alone.tobytes() == together.tobytes():
        return 0.0
    if alone.shape != together.shape:
        return MOST
    one, other = _numbers(alone, dtype), _numbers(together, dtype)
    with np.errstate(all="ignore"):
        found = float(np.max(np.abs(one - other)) / np.max(np.abs(one)))
    # Also where it is no number: infinite less infinite, or 0 of 0. Of 0 and -0 the bits differ all the same.
    return max(found, TINY) if found < MOST else MOST
