"""The demo's verdict on a part: the surface model's class probabilities become OK or NG, a score and boxes.

The model looks at cells of 4x4 pixels. numpy only; a user's function like any other (``postprocess.py`` has the contract).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.status import Code, RequestError
from schemas.tensors import pack_bytes

CLASSES = ("ok", "scratch", "pit", "stain")
OK_CLASS = 0
CELL_PIXELS = 4
# One bright cell is no defect: the part is judged by its worst four together.
WORST_CELLS = 4
NG_ABOVE = 0.5
MIN_BOX_CELLS = 2
NO_BOXES = np.empty((0, 6), np.float32)

_PACKED = {word: np.frombuffer(pack_bytes([word]), np.uint8) for word in (b"OK", b"NG")}


def verdict(
    inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]], params: object
) -> dict[str, tuple[int, ...]]:
    """Judge one part.

    Args:
        inputs: prob (1, 4, height / 4, width / 4) float32, the classes of each cell in the order of CLASSES.
        outputs: verdict, flat uint8, gets b"OK" or b"NG" as one BYTES element; score (1,) float32, the mean of the four largest
            1 - prob[ok]; boxes (most, 6) float32, rows of x0, y0, x1, y1 in pixels, class, score; highest score first.
        params: not used.

    Raises:
        RequestError: MODEL_FAILED when a probability is not a number: no part passes on that.
    """
    prob = inputs["prob"][0]
    defect = 1 - prob[OK_CLASS]
    score = np.sort(defect, axis=None)[-WORST_CELLS:].mean()
    # NaN sorts last, so one anywhere ends up in the score.
    if not np.isfinite(score):
        raise RequestError(Code.MODEL_FAILED, field="prob", expected="finite probabilities", got=score)
    boxes = find_boxes(prob.argmax(axis=0), defect)[: len(outputs["boxes"])]
    packed = _PACKED[b"NG" if score > NG_ABOVE else b"OK"]
    outputs["verdict"][: packed.size] = packed
    outputs["score"][0] = score
    outputs["boxes"][: len(boxes)] = boxes
    return {"verdict": (1,), "score": (1,), "boxes": boxes.shape}


def find_boxes(classes: NDArray[np.intp], defect: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a box around each connected group of cells of one defect class, highest score first.

    Args:
        classes: (rows, columns) of cells, the most likely class.
        defect: (rows, columns), 1 - prob[ok]; a box's score is its mean over the group.

    Returns:
        (boxes, 6) float32: x0, y0, x1, y1 in pixels (x1 and y1 exclusive), class, score. Groups below MIN_BOX_CELLS are left out.
    """
    rows, columns = np.nonzero(classes != OK_CLASS)
    if rows.size == 0:
        return NO_BOXES
    first, group, cells = np.unique(label(classes)[rows, columns], return_inverse=True, return_counts=True)
    boxes = np.empty((first.size, 6), np.float32)
    for at, values in ((0, columns), (1, rows)):
        low, high = np.full(first.size, classes.size), np.zeros(first.size, np.intp)
        np.minimum.at(low, group, values)
        np.maximum.at(high, group, values)
        boxes[:, at], boxes[:, at + 2] = low * CELL_PIXELS, (high + 1) * CELL_PIXELS
    boxes[:, 4] = classes.ravel()[first]
    boxes[:, 5] = np.bincount(group, weights=defect[rows, columns]) / cells
    boxes = boxes[cells >= MIN_BOX_CELLS]
    return boxes[np.argsort(-boxes[:, 5], kind="stable")]


def label(classes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return for each cell the lowest flat index of its group: cells of one class connected by sides or corners.

    Cells of OK_CLASS stay alone. Union-find on whole arrays: every pair of neighbours with different roots hooks the higher root
    to the lower one, then all cells are led to their roots; few rounds even for a spiral, where spreading labels from cell to
    cell takes as many as it is long.
    """
    first, second = _neighbours(classes)
    root = np.arange(classes.size)
    while first.size:
        low, high = np.minimum(root[first], root[second]), np.maximum(root[first], root[second])
        np.minimum.at(root, high, low)
        while not np.array_equal(above := root[root], root):
            root = above
        apart = root[first] != root[second]
        first, second = first[apart], second[apart]
    return root.reshape(classes.shape)


def _neighbours(classes: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the flat indices of each pair of adjacent cells that share a defect class."""
    index = np.arange(classes.size).reshape(classes.shape)
    here, after, before, every = slice(None, -1), slice(1, None), slice(None, -1), slice(None)
    pairs = [
        ((every, here), (every, after)),
        ((here, every), (after, every)),
        ((here, before), (after, after)),
        ((here, after), (after, before)),
    ]
    found = []
    for one, other in pairs:
        same = (classes[one] == classes[other]) & (classes[one] != OK_CLASS)
        found.append((index[one][same], index[other][same]))
    return np.concatenate([one for one, _ in found]), np.concatenate([other for _, other in found])
