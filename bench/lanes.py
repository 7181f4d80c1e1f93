"""What the benchmark's own lanes compute: functions of stages, loaded by the servers under test and by the bare loops alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]

PHOTO_PIXELS = 224
# Of a tile, in pixels: a divisor of 1080, 1920, 2160 and 3840.
TILE = 120
THRESHOLD = 140.0
# Bytes of a leased frame that ``touched`` reads.
TOUCHED = 1024
# Mean and deviation of ImageNet's photos, R G B, of values from 0 to 1: what image classifiers are mostly trained with.
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)
_SCALE = (1 / (255 * _DEVIATION))[:, None, None]
_SHIFT = (-_MEAN / _DEVIATION)[:, None, None]


def photo_row(pixels: NDArray[np.uint8], row: NDArray[np.float32]) -> None:
    """Resize a photo and write it, normalised, to *row*.

    Args:
        pixels: (height, width, 3) uint8, RGB.
        row: (3, PHOTO_PIXELS, PHOTO_PIXELS) float32, written in place.
    """
    from PIL import Image

    small = Image.fromarray(pixels).resize((PHOTO_PIXELS, PHOTO_PIXELS), Image.Resampling.BILINEAR, reducing_gap=2.0)
    np.multiply(np.asarray(small).transpose(2, 0, 1), _SCALE, out=row)
    row += _SHIFT


def photo(inputs: Arrays, outputs: Arrays, params: object) -> None:
    """Preprocess one photo for a classifier: see ``photo_row``."""
    (row,) = outputs.values()
    photo_row(inputs["pixels"], row[0])


def top5(inputs: Arrays, outputs: Arrays, params: object) -> None:
    """Write the five largest scores of one row, and their classes, largest first."""
    (scores,) = inputs.values()
    best = np.argpartition(scores[0], -5)[-5:]
    best = best[np.argsort(-scores[0, best])]
    outputs["classes"][...] = best
    outputs["scores"][...] = scores[0, best]


def tile_means(frame: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the mean colour of each tile.

    Args:
        frame: (height, width, 3) uint8, sides multiples of TILE.

    Returns:
        (height / TILE, width / TILE, 3) float32.
    """
    height, width, _ = frame.shape
    # 120 rows of bytes fit 16 bits; adding whole rows keeps the inner loop contiguous.
    lines = frame.reshape(height // TILE, TILE, width * 3).sum(axis=1, dtype=np.uint16)
    sums = lines.reshape(height // TILE, width // TILE, TILE, 3).sum(axis=2, dtype=np.uint32)
    means: NDArray[np.float32] = sums.astype(np.float32) / np.float32(TILE * TILE)
    return means


def tiles(inputs: Arrays, outputs: Arrays, params: object) -> Shapes:
    """Write the tile means of one frame, and which tiles have a colour above THRESHOLD."""
    (frame,) = inputs.values()
    means = tile_means(frame)
    rows, columns, _ = means.shape
    outputs["means"][:rows, :columns] = means
    outputs["flags"][:rows, :columns] = means.max(axis=2) > THRESHOLD
    return {"means": means.shape, "flags": (rows, columns)}


def seen(inputs: Arrays, outputs: Arrays, params: object) -> None:
    """Answer with how many bytes came, and touch none of them: what is left is the way itself."""
    outputs["nbytes"][0] = sum(array.nbytes for array in inputs.values())


def touched(inputs: Arrays, outputs: Arrays, params: object) -> None:
    """Answer with the sum of the first TOUCHED bytes: the same work, however large the frame is."""
    (frame,) = inputs.values()
    outputs["sum"][0] = frame[:TOUCHED].sum(dtype=np.int64)
