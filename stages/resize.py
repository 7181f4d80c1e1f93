"""Pictures of any size to the rows of a model: resize, normalise, HWC to CHW. The numpy twin of ``kernels/preprocess.cu``.

Bilinear with half-pixel centres and no antialiasing. Twin and kernel do the same float32 operations in the same order, each
rounded by itself, so that they give the same bits: change both or none. Pure: no device, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.status import Code, RequestError
from schemas.tensors import NUMPY_NAME, DType

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]

# Sides of the result; float32 holds a position's denominator, twice the side, exactly.
MAX_OUT_SIDE = 1 << 15
# The kernel computes positions in 32 bits: a side of the picture times the same side of the result stays below this.
MAX_SIDE_PRODUCT = 1 << 30


@dataclass(frozen=True, slots=True)
class ResizeSpec:
    """What a picture becomes: *channels* planes of *height* x *width*, each value (pixel - mean) * scale of its channel.

    Args:
        channels: 3, or 1 for grey pictures.
        dtype: FP32 or FP16.
        mean, scale: one for each channel, in pixel values (0 to 255) and 1 / pixel values.
    """

    height: int
    width: int
    channels: int = 3
    dtype: DType = DType.FP32
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    scale: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        sides_fit = 0 < self.height <= MAX_OUT_SIDE and 0 < self.width <= MAX_OUT_SIDE
        if not sides_fit or self.channels not in (1, 3) or self.dtype not in (DType.FP32, DType.FP16):
            raise ValueError(f"expected sides of 1 to {MAX_OUT_SIDE}, 1 or 3 channels, FP32 or FP16; got {self}")
        if len(self.mean) != self.channels or len(self.scale) != self.channels:
            raise ValueError(f"expected {self.channels} means and scales, got {self.mean} and {self.scale}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one row: (channels, height, width)."""
        return (self.channels, self.height, self.width)


def check_picture(spec: ResizeSpec, shape: tuple[int, ...]) -> None:
    """Refuse a picture that the kernel cannot take.

    Args:
        shape: (height, width, 3), or (height, width) where the spec has one channel.

    Raises:
        RequestError: BAD_SHAPE, other channels, an empty side, or one so long that its positions need more than 32 bits.
    """
    wanted = (3,) if spec.channels == 3 else ()
    if len(shape) < 2 or shape[2:] != wanted:
        raise RequestError(Code.BAD_SHAPE, field="image", expected=f"pixels {('height', 'width', *wanted)}", got=shape)
    for side, out_side, name in ((shape[0], spec.height, "height"), (shape[1], spec.width, "width")):
        most = (MAX_SIDE_PRODUCT - 1) // out_side
        if not 1 <= side <= most:
            raise RequestError(Code.BAD_SHAPE, field="image", expected=f"a {name} of 1 to {most} pixels", got=shape)


def describe_row(picture: Pixels | None) -> tuple[int, int, int, int]:
    """Return (address, height, width, bytes from one line to the next) of a picture for the kernel; None is a padding row.

    The pixels of one line must lie side by side; lines may be any distance apart.
    """
    if picture is None:
        return (0, 0, 0, 0)
    channels = picture.shape[2] if picture.ndim == 3 else 1
    line = (channels, 1) if picture.ndim == 3 else (1,)
    assert picture.dtype == np.uint8
    assert picture.strides[1:] == line, "the pixels of a line must be adjacent bytes"
    return (picture.ctypes.data, picture.shape[0], picture.shape[1], picture.strides[0])


def resize_rows(spec: ResizeSpec, pictures: Sequence[Pixels | None], out: NDArray[Any]) -> None:
    """Write each picture to its row of *out*.

    Args:
        pictures: (height, width, 3) or (height, width) uint8 as the spec says, not modified; None is a padding row: zeros.
        out: (rows, channels, height, width) of the spec's datatype, C-contiguous or not; rows = len(pictures).

    Raises:
        RequestError: BAD_SHAPE, as :func:`check_picture` says; then rows before it are written.
    """
    assert out.shape == (len(pictures), *spec.shape)
    assert out.dtype == NUMPY_NAME[spec.dtype]
    for picture, row in zip(pictures, out, strict=True):
        if picture is None:
            row.fill(0)
        else:
            resize_row(spec, picture, row)


def resize_row(spec: ResizeSpec, picture: Pixels, row: NDArray[Any]) -> None:
    """Write one picture's (channels, height, width) to *row*; see :func:`resize_rows`."""
    check_picture(spec, picture.shape)
    upper, lower, down = _places(picture.shape[0], spec.height)
    left, right, across = _places(picture.shape[1], spec.width)
    pixels = picture.reshape(*picture.shape[:2], spec.channels)
    across, down = across[None, :, None], down[:, None, None]
    top = _between(pixels[upper[:, None], left], pixels[upper[:, None], right], across)
    bottom = _between(pixels[lower[:, None], left], pixels[lower[:, None], right], across)
    mixed = _between(top, bottom, down)
    mixed -= np.asarray(spec.mean, np.float32)
    mixed *= np.asarray(spec.scale, np.float32)
    # Too large for FP16 is infinity, as the kernel gives.
    with np.errstate(over="ignore"):
        np.copyto(row, mixed.transpose(2, 0, 1), casting="same_kind")


def _between(first: NDArray[Any], second: NDArray[Any], weight: Floats) -> Floats:
    """Return first + (second - first) * weight in float32."""
    start = first.astype(np.float32, copy=False)
    result: Floats = start + (second.astype(np.float32, copy=False) - start) * weight
    return result


def _places(in_size: int, out_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return for each output pixel of one axis its two neighbours and how much of the second one.

    Output pixel i lies at ((2 i + 1) in_size - out_size) / (2 out_size), which is kept as a fraction until the weight.
    """
    denominator = 2 * out_size
    numerator = np.maximum((2 * np.arange(out_size) + 1) * in_size - out_size, 0)
    first = np.minimum(numerator // denominator, in_size - 1)
    second = np.minimum(first + 1, in_size - 1)
    weight = (numerator - first * denominator).astype(np.float32) / np.float32(denominator)
    weight[first == in_size - 1] = 0.0
    return first, second, weight
