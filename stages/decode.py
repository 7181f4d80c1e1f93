"""Encoded images and raw tensors become pixels in a slot: the decode stage's functions.

JPEG by simplejpeg straight into the slot, PNG by Pillow. What a file claims is checked before a pixel is decoded
(``image_header.py``). No model's input layout here (``preprocess.py``).

One rule for each conversion, the same for every format:

- grey from colour: ITU-R 601-2 luma of the RGB pixels, (19595 R + 38470 G + 7471 B + 32768) >> 16, bit-equal to Pillow's "L".
  A colour JPEG is decoded to RGB first: its stored Y differs from this in 1 to 6 % of the pixels, by up to 19.
- colour from grey: the value three times. Alpha and transparent colours are dropped, not blended. A palette is looked up.
- CMYK JPEG: taken as stored inverted (Adobe's way) and without a profile, R = C K / 255. Profiles are ignored everywhere.
- 16 (or 12) bits a channel: refused, as nothing says how to fit them into 8.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.status import Code, ConfigError, RequestError
from schemas.tensors import element_count
from stages.image_header import ImageHeader, read_header

Color = Literal["grey", "rgb"]
Orientation = Literal["stored", "exif"]
Pixels = NDArray[np.uint8]

MAX_SIDE_PIXELS = 8_192
MAX_ENCODED_BYTES = 32 << 20
_EXIF_ORIENTATION = 0x0112

# How a picture stored with this EXIF orientation is turned upright; both forms (h, w) and (h, w, 3). 1 is upright.
_UPRIGHT: dict[int, Callable[[Pixels], Pixels]] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels[::-1].swapaxes(0, 1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: pixels[:, ::-1].swapaxes(0, 1),
}


class Decoders(NamedTuple):
    """The image libraries, imported only where images are decoded."""

    simplejpeg: ModuleType
    image: ModuleType


@cache
def load_decoders() -> Decoders:
    """Import the image libraries; a stage calls it at its start so that a missing one is met there.

    Raises:
        ConfigError: one is not installed.
    """
    try:
        import simplejpeg
        from PIL import Image
    except ImportError as error:
        raise ConfigError(f"the decode stage needs simplejpeg and Pillow ({error}): pip install 'slotline[cpu]'") from error
    return Decoders(simplejpeg, Image)


def decode_image(
    encoded: NDArray[np.uint8] | memoryview, out: Pixels, *, color: Color, orientation: Orientation, max_pixels: int
) -> tuple[int, ...]:
    """Decode a PNG or JPEG into the first bytes of *out* and return the pixels' shape.

    Args:
        encoded: the whole file, uint8. Not modified.
        out: (bytes,) uint8 view of the slot's pixel region; written in C order.
        color: "grey" gives (height, width), "rgb" (height, width, 3).
        orientation: "stored" leaves the picture as it lies in the file, "exif" turns it upright (one copy more).
        max_pixels: width x height allowed, the lane's ``max_pixels``.

    Raises:
        RequestError: BAD_IMAGE for a damaged, unknown or 16-bit file; TOO_LARGE, before decoding, for one beyond a limit;
            OUT_OF_MEMORY when the decoder cannot get its working memory.
    """
    decoders = load_decoders()
    if len(encoded) > MAX_ENCODED_BYTES:
        raise RequestError(Code.TOO_LARGE, field="image", expected=f"at most {MAX_ENCODED_BYTES} bytes", got=len(encoded))
    file = encoded if isinstance(encoded, memoryview) else encoded.data
    header = read_header(file)
    _check_limits(header, max_pixels)
    shape = _shape(header.height, header.width, color)
    _check_room(shape, out)
    with _library_errors(decoders):
        turn = _UPRIGHT.get(_exif_orientation(decoders, file)) if orientation == "exif" else None
        pixels = out[: element_count(shape)].reshape(shape) if turn is None else np.empty(shape, np.uint8)
        if header.format == "jpeg":
            _decode_jpeg(decoders, file, header, pixels)
        else:
            _decode_png(decoders, file, pixels)
    return shape if turn is None else _copy(turn(pixels), out)


def raw_pixels(pixels: NDArray[Any], out: Pixels, *, color: Color) -> tuple[int, ...]:
    """Copy a raw tensor into the first bytes of *out*, converted as an image would be, and return the shape.

    Args:
        pixels: (height, width) or (height, width, 3) uint8, C order. Not modified.
        out: (bytes,) uint8 view of the slot's pixel region.
        color: as in :func:`decode_image`.

    Raises:
        RequestError: BAD_DTYPE, BAD_SHAPE (rank, channels, an empty side), TOO_LARGE.
    """
    if pixels.dtype != np.uint8:
        raise RequestError(Code.BAD_DTYPE, field="image", expected="UINT8", got=pixels.dtype)
    if pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or pixels.size == 0:
        raise RequestError(Code.BAD_SHAPE, field="image", expected="(height, width) or (height, width, 3)", got=pixels.shape)
    if max(pixels.shape) > MAX_SIDE_PIXELS:
        raise RequestError(Code.TOO_LARGE, field="image", expected=f"sides up to {MAX_SIDE_PIXELS}", got=pixels.shape)
    height, width = pixels.shape[:2]
    shape = _shape(height, width, color)
    _check_room(shape, out)
    target = out[: element_count(shape)].reshape(shape)
    if color == "grey" and pixels.ndim == 3:
        image = load_decoders().image.frombuffer("RGB", (width, height), pixels, "raw", "RGB", 0, 1)
        np.copyto(target, np.asarray(image.convert("L")))
    else:
        np.copyto(target, pixels[..., None] if target.ndim > pixels.ndim else pixels)
    return shape


def _shape(height: int, width: int, color: Color) -> tuple[int, ...]:
    """Return the shape of the pixels in *color*."""
    return (height, width) if color == "grey" else (height, width, 3)


def _check_limits(header: ImageHeader, max_pixels: int) -> None:
    """Refuse what must not reach a decoder: these limits bound its memory and its time."""
    size = f"{header.width} x {header.height}"
    if header.width == 0 or header.height == 0:
        raise RequestError(Code.BAD_IMAGE, field="image", expected="sides of 1 pixel or more", got=size)
    if max(header.width, header.height) > MAX_SIDE_PIXELS:
        raise RequestError(Code.TOO_LARGE, field="image", expected=f"sides up to {MAX_SIDE_PIXELS} pixels", got=size)
    if header.width * header.height > max_pixels:
        raise RequestError(Code.TOO_LARGE, field="image", expected=f"at most {max_pixels} pixels (max_pixels)", got=size)
    if header.bit_depth > 8:
        raise RequestError(Code.BAD_IMAGE, field="image", expected="8 bits a channel", got=header.bit_depth)


def _check_room(shape: tuple[int, ...], out: Pixels) -> None:
    """Refuse pixels that the slot's region cannot hold."""
    if element_count(shape) > out.nbytes:
        expected = f"at most {out.nbytes} bytes of pixels (max_pixels)"
        raise RequestError(Code.TOO_LARGE, field="image", expected=expected, got=element_count(shape))


@contextmanager
def _library_errors(decoders: Decoders) -> Iterator[None]:
    """Turn whatever a decoder raises into a refusal of this image."""
    with warnings.catch_warnings():
        # A peer's file must not write to our stderr; the bomb warning alone is a reason to stop.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", decoders.image.DecompressionBombWarning)
        try:
            yield
        except MemoryError as error:
            raise RequestError(Code.OUT_OF_MEMORY, field="image", message="image: no memory to decode it") from error
        # On hostile bytes Pillow raises OSError, SyntaxError, struct.error, zlib.error, KeyError, ... and promises no list.
        except Exception as error:
            # Pillow names its file object with its address, which is no peer's business.
            reason = str(error).partition(" <")[0]
            raise RequestError(Code.BAD_IMAGE, field="image", expected="a whole image", got=reason) from error


def _decode_jpeg(decoders: Decoders, file: memoryview, header: ImageHeader, pixels: Pixels) -> None:
    """Decode into *pixels*; only grey from colour needs scratch. Damage that a decoder would paint over is an error (strict)."""
    decode = decoders.simplejpeg.decode_jpeg
    if pixels.ndim == 3:
        decode(file, "RGB", buffer=pixels)
    elif header.channels == 1:
        decode(file, "GRAY", buffer=pixels)
    else:
        # Four bytes a pixel, because Pillow can read that in place (1.2 ms for 1920x1080; from RGB 2.1, in numpy 3.6).
        scratch = decode(file, "RGBX")
        size = (header.width, header.height)
        np.copyto(pixels, np.asarray(decoders.image.frombuffer("RGBX", size, scratch, "raw", "RGBX", 0, 1).convert("L")))


def _decode_png(decoders: Decoders, file: memoryview, pixels: Pixels) -> None:
    """Decode by Pillow and copy into *pixels*; of an animation the first picture."""
    with decoders.image.open(io.BytesIO(file), formats=["PNG"]) as image:
        # Without it Pillow blends or remaps in some modes; the rule is to drop transparency.
        image.info.pop("transparency", None)
        image.load()
        picture = image.convert("RGB") if image.mode in ("P", "PA") else image
        mode = "L" if pixels.ndim == 2 else "RGB"
        np.copyto(pixels, np.asarray(picture if picture.mode == mode else picture.convert(mode)))


def _exif_orientation(decoders: Decoders, file: memoryview) -> int:
    """Return the EXIF orientation, 1 (upright) when there is none."""
    with decoders.image.open(io.BytesIO(file), formats=["PNG", "JPEG"]) as image:
        return int(image.getexif().get(_EXIF_ORIENTATION, 1))


def _copy(pixels: Pixels, out: Pixels) -> tuple[int, ...]:
    """Copy *pixels* into the first bytes of *out* and return their shape."""
    np.copyto(out[: pixels.size].reshape(pixels.shape), pixels)
    return pixels.shape
