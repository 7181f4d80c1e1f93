"""One rule for each conversion between colours, the same for every format.

- grey from colour: ITU-R 601-2 luma of the RGB pixels, (19595 R + 38470 G + 7471 B + 32768) >> 16, bit-equal to Pillow's "L".
- colour from grey: the value three times.
- transparency over a background b: (c a + b (255 - a) + 127) // 255.
- CMYK: with K = 255 meaning no ink (Adobe's way) R = (C K + 127) // 255; otherwise of the inverted values. No profiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.image_libraries import load_decoders
from stages.image_rules import Pixels

# Rows handled at a time, so that the 16-bit intermediates of a large picture stay small.
_STRIPE_ROWS = 64


def write_pixels(pixels: NDArray[Any], target: NDArray[Any]) -> None:
    """Write grey or RGB *pixels* to *target*, converted when one is grey and the other not.

    Args:
        pixels: (height, width) or (height, width, 3). Not modified.
        target: the same size, (height, width) or (height, width, 3); from colour to grey both are uint8.
    """
    if pixels.ndim == target.ndim:
        np.copyto(target, pixels)
    elif target.ndim == 3:
        np.copyto(target, pixels[..., None])
    else:
        height, width = target.shape
        image = load_decoders().image.frombuffer("RGB", (width, height), np.ascontiguousarray(pixels), "raw", "RGB", 0, 1)
        np.copyto(target, np.asarray(image.convert("L")))


def grey_of_rgbx(scratch: Pixels, target: Pixels) -> None:
    """Write the luma of (height, width, 4) *scratch*, its fourth byte unused, to *target*.

    Four bytes a pixel, because Pillow can read that in place (1.2 ms for 1920x1080; from RGB 2.1, in numpy 3.6).
    """
    height, width = target.shape
    image = load_decoders().image.frombuffer("RGBX", (width, height), scratch, "raw", "RGBX", 0, 1)
    np.copyto(target, np.asarray(image.convert("L")))


def blend(rgba: Pixels, background: int) -> Pixels:
    """Return (height, width, 3): *rgba* laid over a grey of value *background*."""
    rgb = np.empty((*rgba.shape[:2], 3), np.uint8)
    for top in range(0, len(rgba), _STRIPE_ROWS):
        part = rgba[top : top + _STRIPE_ROWS].astype(np.uint16)
        alpha = part[..., 3:]
        # At most 255 * 255 + 127: 16 bits are enough.
        rgb[top : top + _STRIPE_ROWS] = (part[..., :3] * alpha + background * (255 - alpha) + 127) // 255
    return rgb


def rgb_of_cmyk(cmyk: Pixels, *, inverted: bool) -> Pixels:
    """Return (height, width, 3) of (height, width, 4) *cmyk*; *inverted* says that 255 means no ink."""
    rgb = np.empty((*cmyk.shape[:2], 3), np.uint8)
    for top in range(0, len(cmyk), _STRIPE_ROWS):
        part = cmyk[top : top + _STRIPE_ROWS].astype(np.uint16)
        if not inverted:
            part = 255 - part
        rgb[top : top + _STRIPE_ROWS] = (part[..., :3] * part[..., 3:] + 127) // 255
    return rgb
