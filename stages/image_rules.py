"""What a lane says about its pictures, and the limits that hold for every one of them, encoded or raw. No decoding here.

These limits bound a decoder's memory and time, so they are checked before any pixel is touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from schemas.status import Code, RequestError
from schemas.tensors import element_count

Color = Literal["grey", "rgb"]
Pixels = NDArray[np.uint8]
Shape = tuple[int, ...]

MAX_SIDE_PIXELS = 8_192
MAX_ENCODED_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class ImageRules:
    """The rules of one lane; the keys of its decode table.

    Args:
        color: "grey" gives (height, width), "rgb" (height, width, 3).
        orientation: "stored" leaves a picture as it lies in the file, "exif" turns it upright (one copy more).
        alpha: "drop" keeps the colour under transparency, "black" and "white" lay it over that.
        depth: bits of a channel of the pixels: 8 gives uint8, 16 uint16 (grey only).
        formats: the file formats that are taken.
        pixel_format: what raw tensors hold, a GenICam name, or "auto": by datatype and rank.
        max_pixels: width x height allowed, the lane's ``max_pixels``.
    """

    color: Color = "rgb"
    orientation: Literal["stored", "exif"] = "stored"
    alpha: Literal["drop", "black", "white"] = "drop"
    depth: Literal[8, 16] = 8
    formats: tuple[str, ...] = ("jpeg", "png")
    pixel_format: str = "auto"
    max_pixels: int = 1_000_000

    @classmethod
    def of(cls, params: Mapping[str, Any], max_pixels: int) -> ImageRules:
        """Return the rules that a checked decode table says."""
        names = ("color", "orientation", "alpha", "depth", "formats", "pixel_format")
        return cls(**{name: params[name] for name in names}, max_pixels=max_pixels)

    def shape(self, height: int, width: int) -> Shape:
        """Return the shape of the pixels of a picture of this size."""
        return (height, width) if self.color == "grey" else (height, width, 3)

    def check_size(self, height: int, width: int) -> None:
        """Refuse an empty picture, a long side, too many pixels.

        Raises:
            RequestError: BAD_IMAGE or TOO_LARGE.
        """
        size = f"{width} x {height}"
        if width == 0 or height == 0:
            raise RequestError(Code.BAD_IMAGE, field="image", expected="sides of 1 pixel or more", got=size)
        if max(width, height) > MAX_SIDE_PIXELS:
            raise RequestError(Code.TOO_LARGE, field="image", expected=f"sides up to {MAX_SIDE_PIXELS} pixels", got=size)
        if width * height > self.max_pixels:
            raise RequestError(Code.TOO_LARGE, field="image", expected=f"at most {self.max_pixels} pixels (max_pixels)", got=size)

    def target(self, shape: Shape, out: Pixels) -> NDArray[Any]:
        """Return the first bytes of *out* as pixels of *shape*: uint8, or uint16 with depth 16.

        Raises:
            RequestError: TOO_LARGE when they do not fit.
        """
        nbytes = element_count(shape) * self.depth // 8
        if nbytes > out.nbytes:
            expected = f"at most {out.nbytes} bytes of pixels (max_pixels)"
            raise RequestError(Code.TOO_LARGE, field="image", expected=expected, got=nbytes)
        return out[:nbytes].view(f"<u{self.depth // 8}").reshape(shape)
