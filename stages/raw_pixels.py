"""Raw frames, as cameras and programs send them, become pixels in a slot by the same rules as decoded images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.status import Code, RequestError
from stages.image_colors import write_pixels
from stages.image_rules import ImageRules, Pixels, Shape
from stages.pixel_formats import PIXEL_FORMATS, PixelFormat


def raw_pixels(frame: NDArray[Any], out: Pixels, rules: ImageRules) -> Shape:
    """Write a raw frame to the first bytes of *out*, converted as an image would be, and return the shape.

    With depth 8 the highest 8 of the used bits are kept (12 bits: value >> 4); with depth 16 values stay as they are.

    Args:
        frame: the tensor of the lane's pixel format, C order. Not modified.
        out: (bytes,) uint8 view of the slot's pixel region.

    Raises:
        RequestError: BAD_DTYPE, BAD_SHAPE (rank, channels, packed rows), BAD_IMAGE (an empty side, a value with unused bits set),
            TOO_LARGE.
    """
    name, pixel_format = _format_of(frame, rules)
    if frame.dtype != pixel_format.dtype:
        got = np.dtype(frame.dtype).name.upper()
        expected = f"{np.dtype(pixel_format.dtype).name.upper()} of {name} (pixel_format)"
        raise RequestError(Code.BAD_DTYPE, field="image", expected=expected, got=got)
    if frame.ndim != pixel_format.rank or frame.shape[2:] not in ((), (3,)):
        expected = f"(height, width{', 3' if pixel_format.rank == 3 else ''}) of {name} (pixel_format)"
        raise RequestError(Code.BAD_SHAPE, field="image", expected=expected, got=list(frame.shape))
    height, width = pixel_format.size(frame.shape)
    rules.check_size(height, width)
    shape = rules.shape(height, width)
    target = rules.target(shape, out)
    write_pixels(_fitted(pixel_format.plain(frame), pixel_format.bits, rules.depth), target)
    return shape


def _format_of(frame: NDArray[Any], rules: ImageRules) -> tuple[str, PixelFormat]:
    """Return name and rules of the lane's format; "auto" is what the tensor's rank and the lane's depth say."""
    name = rules.pixel_format
    if name == "auto":
        name = "Mono16" if rules.depth == 16 else "RGB8" if frame.ndim == 3 else "Mono8"
    return name, PIXEL_FORMATS[name]


def _fitted(plain: NDArray[Any], bits: int, depth: int) -> NDArray[Any]:
    """Return the pixels with values of *depth* bits."""
    if bits == 8:
        return plain
    if bits < 16 and plain.max() >> bits:
        raise RequestError(Code.BAD_IMAGE, field="image", expected=f"values of {bits} bits (pixel_format)", got=plain.max())
    return plain if depth == 16 else (plain >> (bits - 8)).astype(np.uint8)
