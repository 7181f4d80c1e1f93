"""Pixels become the rows a model takes: the built-in functions by name, each with the tensor it makes of a picture.

No decoding (``decode.py``), no user code (``postprocess.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.status import Code, RequestError
from schemas.tensors import DType

# A flat, textureless picture would have its noise blown up; 8 of 255 is the floor the surface model was trained with.
MIN_DEVIATION = 8.0


@dataclass(frozen=True, slots=True)
class Preprocess:
    """A built-in preprocess step.

    Args:
        function: writes one picture's row: (pixels, row); row is the tensor without its first dimension.
        tensor_shape: the tensor of one row made of pixels of a given shape; raises RequestError for a shape it cannot take.
        dtype: the tensor's datatype.
    """

    function: Callable[[NDArray[np.uint8], NDArray[Any]], None]
    tensor_shape: Callable[[tuple[int, ...]], tuple[int, ...]]
    dtype: DType


def standardize(pixels: NDArray[np.uint8], row: NDArray[np.float32]) -> None:
    """Write (grey - mean) / max(std, 8) of one picture to *row*.

    Args:
        pixels: (height, width) uint8, grey. Not modified.
        row: (1, height, width) float32; written in place, mean 0.

    Source: ``prep`` of the surface model's training; the same operations in the same order, so that results are bit-equal.
    """
    grey = row[0]
    np.copyto(grey, pixels)
    grey -= grey.mean()
    grey /= np.maximum(grey.std(), np.float32(MIN_DEVIATION))


def keep(pixels: NDArray[np.uint8], row: NDArray[np.uint8]) -> None:
    """Copy *pixels* to *row* unchanged; same shape."""
    np.copyto(row, pixels)


def _grey_plane(pixels_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return (1 row, 1 channel, height, width) for grey pixels."""
    if len(pixels_shape) != 2:
        raise RequestError(Code.BAD_SHAPE, field="image", expected="grey pixels (height, width)", got=pixels_shape)
    return (1, 1, *pixels_shape)


BUILT_IN: dict[str, Preprocess] = {
    "none": Preprocess(keep, lambda pixels_shape: (1, *pixels_shape), DType.UINT8),
    "standardize": Preprocess(standardize, _grey_plane, DType.FP32),
}
