"""What a camera's raw frame holds, by its GenICam name, and how it becomes plain grey or RGB. Limits: ``raw_pixels.py``.

A frame comes as a tensor of (height, bytes or values of one row), so that nobody has to be told its size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.status import Code, RequestError

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """One format: the tensor that it comes as, and what makes plain pixels of it.

    Attributes:
        dtype, rank: of the tensor; a third dimension is 3 channels.
        bits: used bits of a value; the others are 0.
        size: (height, width) of the picture in a tensor of this shape.
        plain: (height, width) or (height, width, 3), uint8 or uint16, of the tensor.
    """

    dtype: type[np.uint8] | type[np.uint16]
    rank: int
    bits: int
    size: Callable[[tuple[int, ...]], tuple[int, int]]
    plain: Callable[[Array], Array]


def _as_it_is(frame: Array) -> Array:
    return frame


def _size(shape: tuple[int, ...]) -> tuple[int, int]:
    return shape[0], shape[1]


def _packed_size(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the size of a frame of 2 pixels in 3 bytes, rows not shared."""
    height, row_bytes = shape
    if row_bytes % 3:
        raise RequestError(
            Code.BAD_SHAPE, field="image", expected="(height, width * 3 / 2) bytes of an even width", got=list(shape)
        )
    return height, row_bytes // 3 * 2


def _mosaic_size(shape: tuple[int, ...]) -> tuple[int, int]:
    height, width = shape
    if min(height, width) < 2:
        raise RequestError(Code.BAD_SHAPE, field="image", expected="a Bayer mosaic of 2 x 2 or more", got=list(shape))
    return height, width


def mono12p(frame: Array) -> Array:
    """Unpack (height, width * 3 / 2) bytes of GenICam Mono12p, least significant bits first, to (height, width) uint16.

    byte 0: A 7..0 | byte 1: B 3..0, A 11..8 | byte 2: B 11..4
    """
    first, middle, last = _triples(frame)
    return _interleaved(first | (middle & 0x0F) << 8, middle >> 4 | last << 4)


def mono12packed(frame: Array) -> Array:
    """Unpack (height, width * 3 / 2) bytes of GigE Vision Mono12Packed to (height, width) uint16.

    byte 0: A 11..4 | byte 1: B 3..0, A 3..0 | byte 2: B 11..4
    """
    first, middle, last = _triples(frame)
    return _interleaved(first << 4 | middle & 0x0F, last << 4 | middle >> 4)


def _triples(frame: Array) -> tuple[Array, Array, Array]:
    first, middle, last = (frame[:, at::3].astype(np.uint16) for at in range(3))
    return first, middle, last


def _interleaved(even: Array, odd: Array) -> Array:
    pixels = np.empty((even.shape[0], 2 * even.shape[1]), np.uint16)
    pixels[:, ::2], pixels[:, 1::2] = even, odd
    return pixels


def demosaic(mosaic: NDArray[np.uint8], red_row: int, red_column: int) -> NDArray[np.uint8]:
    """Return the RGB picture (height, width, 3) of a Bayer *mosaic* (height, width), bilinear.

    A pixel keeps its own colour. Green at red or blue is the mean of the 4 neighbours above, below, left and right; red and blue
    at green the mean of the 2 neighbours that have it; red at blue, and blue at red, the mean of the 4 diagonal ones. Means are
    rounded half up: (sum + n / 2) // n. Beyond the edge the mosaic is mirrored at the outermost pixels, which keeps its pattern.

    Args:
        red_row, red_column: where the first red pixel is, 0 or 1 each.
    """
    height, width = mosaic.shape
    edged = np.pad(mosaic, 1, mode="reflect")
    rgb = np.empty((height, width, 3), np.uint8)
    for row in (0, 1):
        for column in (0, 1):
            out = rgb[row::2, column::2]
            near = _neighbours(edged, row, column, out.shape[:2])
            in_red_row, in_red_column = row == red_row, column == red_column
            if in_red_row == in_red_column:
                own, other = (0, 2) if in_red_row else (2, 0)
                out[..., own] = near(0, 0)
                out[..., 1] = _mean(near(-1, 0), near(1, 0), near(0, -1), near(0, 1))
                out[..., other] = _mean(near(-1, -1), near(-1, 1), near(1, -1), near(1, 1))
            else:
                beside, above = (0, 2) if in_red_row else (2, 0)
                out[..., 1] = near(0, 0)
                out[..., beside] = _mean(near(0, -1), near(0, 1))
                out[..., above] = _mean(near(-1, 0), near(1, 0))
    return rgb


def _neighbours(edged: Array, row: int, column: int, size: tuple[int, ...]) -> Callable[[int, int], Array]:
    """Return what gives, of every second pixel from (row, column), the neighbour at an offset; *edged* has a border of 1."""

    def near(down: int, right: int) -> Array:
        top, left = 1 + row + down, 1 + column + right
        return edged[top : top + 2 * size[0] - 1 : 2, left : left + 2 * size[1] - 1 : 2]

    return near


def _mean(*values: Array) -> Array:
    total = values[0].astype(np.uint16)
    for value in values[1:]:
        total += value
    total += len(values) // 2
    # 2 or 4 values.
    total >>= len(values) // 2
    return total


def _bayer(red_row: int, red_column: int) -> PixelFormat:
    return PixelFormat(np.uint8, 2, 8, _mosaic_size, lambda frame: demosaic(frame, red_row, red_column))


# A Bayer format is named after the first two pixels of the first row.
PIXEL_FORMATS: dict[str, PixelFormat] = {
    "Mono8": PixelFormat(np.uint8, 2, 8, _size, _as_it_is),
    "RGB8": PixelFormat(np.uint8, 3, 8, _size, _as_it_is),
    "BGR8": PixelFormat(np.uint8, 3, 8, _size, lambda frame: frame[..., ::-1]),
    "Mono10": PixelFormat(np.uint16, 2, 10, _size, _as_it_is),
    "Mono12": PixelFormat(np.uint16, 2, 12, _size, _as_it_is),
    "Mono16": PixelFormat(np.uint16, 2, 16, _size, _as_it_is),
    "Mono12p": PixelFormat(np.uint8, 2, 12, _packed_size, mono12p),
    "Mono12Packed": PixelFormat(np.uint8, 2, 12, _packed_size, mono12packed),
    "BayerRG8": _bayer(0, 0),
    "BayerGR8": _bayer(0, 1),
    "BayerGB8": _bayer(1, 0),
    "BayerBG8": _bayer(1, 1),
}
