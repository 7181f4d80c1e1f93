"""Encoded images become pixels in a slot. JPEG by simplejpeg straight into the slot, the other formats by Pillow.

What a file claims is checked before a pixel is decoded (``image_header.py``). Raw frames are in ``raw_pixels.py``, the colour
rules in ``image_colors.py``; no model's input layout here (``preprocess.py``).

What is not a colour rule, the same for every format: of an animation the first picture; a palette is looked up; profiles are
ignored; more than 8 bits a channel are refused unless the lane says depth 16, and then anything but plain 16-bit grey is refused,
as nothing says how to stretch or squeeze the values.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.status import Code, RequestError
from stages.image_colors import blend, grey_of_rgbx, rgb_of_cmyk, write_pixels
from stages.image_header import check_png_rows, read_header
from stages.image_libraries import Decoders, library_errors, load_decoders
from stages.image_rules import MAX_ENCODED_BYTES, ImageRules, Pixels, Shape
from stages.other_headers import ImageHeader, bad

_EXIF_ORIENTATION = 0x0112
_BACKGROUND = {"black": 0, "white": 255}
# Bytes of working memory a pixel at most, measured: a progressive or CMYK JPEG, turned; a lossless WebP.
_JPEG_WORK_BYTES, _OTHER_WORK_BYTES = 12, 24
# Pillow's modes that the colour rules know; the others are floats, premultiplied, Lab or CMYK of a TIFF.
_MODES = {8: ("1", "L", "LA", "P", "PA", "RGB", "RGBA"), 16: ("I;16", "I;16B")}

Turn = Callable[[NDArray[Any]], NDArray[Any]]

# How a picture stored with this EXIF orientation is turned upright; both forms (h, w) and (h, w, 3). 1 is upright.
_UPRIGHT: dict[int, Turn] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels[::-1].swapaxes(0, 1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: pixels[:, ::-1].swapaxes(0, 1),
}
# Each turn undoes itself, but for the two quarter turns.
_AS_STORED = {**_UPRIGHT, 6: _UPRIGHT[8], 8: _UPRIGHT[6]}


def decode_image(encoded: NDArray[np.uint8] | memoryview, out: Pixels, rules: ImageRules) -> Shape:
    """Decode an image file into the first bytes of *out* and return the pixels' shape.

    Args:
        encoded: the whole file, uint8. Not modified.
        out: (bytes,) uint8 view of the slot's pixel region; written in C order.
        rules: the lane's; ``rules.depth`` says whether the pixels are uint8 or uint16.

    Raises:
        RequestError: BAD_IMAGE for a file that is damaged, of a format that is not taken or of another depth; TOO_LARGE, before
            decoding, for one beyond a limit; OUT_OF_MEMORY when the decoder cannot get its working memory.
    """
    decoders = load_decoders()
    if len(encoded) > MAX_ENCODED_BYTES:
        raise RequestError(Code.TOO_LARGE, field="image", expected=f"at most {MAX_ENCODED_BYTES} bytes", got=len(encoded))
    file = encoded if isinstance(encoded, memoryview) else encoded.data
    header = read_header(file, rules.formats)
    rules.check_size(header.height, header.width)
    _check_depth(header, rules.depth)
    rules.target(rules.shape(header.height, header.width), out)
    decode = _decode_jpeg if header.format == "jpeg" else _decode_other
    with library_errors(decoders):
        _check_memory(header, len(file))
        return decode(decoders, file, header, out, rules)


def _check_depth(header: ImageHeader, depth: int) -> None:
    """Refuse values that do not fit the lane's pixels as they are; 1, 2 and 4 bits are stretched to 8 by every decoder."""
    if header.bit_depth > 8 if depth == 8 else header.bit_depth != depth:
        raise bad(expected=f"{depth} bits a channel (depth)", got=header.bit_depth)
    if depth == 16 and header.channels != 1:
        raise bad(expected="plain grey with 16 bits (depth)", got=f"{header.format} with colour, alpha or white as zero")


def _check_memory(header: ImageHeader, file_bytes: int) -> None:
    """Raise MemoryError when the decoder could not get its working memory: libwebp calls that a damaged file.

    Reserved and given back in 5 us, no page is touched.
    """
    pixel_bytes = _JPEG_WORK_BYTES if header.format == "jpeg" else _OTHER_WORK_BYTES
    np.empty(header.width * header.height * pixel_bytes + file_bytes, np.uint8)


def _decode_jpeg(decoders: Decoders, file: memoryview, header: ImageHeader, out: Pixels, rules: ImageRules) -> Shape:
    """Decode straight into the slot; into scratch when the picture is turned or its colours are converted."""
    turn = _UPRIGHT.get(_jpeg_orientation(decoders, file)) if rules.orientation == "exif" else None
    shape = rules.shape(header.height, header.width)
    pixels = rules.target(shape, out) if turn is None else np.empty(shape, np.uint8)
    decode = decoders.simplejpeg.decode_jpeg
    # Strict by default: damage that the decoder would paint over is an error.
    if header.channels == 4:
        write_pixels(rgb_of_cmyk(decode(file, "CMYK"), inverted=header.adobe), pixels)
    elif rules.color == "rgb":
        decode(file, "RGB", buffer=pixels)
    elif header.channels == 1:
        decode(file, "GRAY", buffer=pixels)
    else:
        # By its RGB: a JPEG's stored Y differs from the luma of that in 1 to 6 % of the pixels, by up to 19.
        grey_of_rgbx(decode(file, "RGBX"), pixels)
    if turn is None:
        return shape
    return _write(turn(pixels), out, rules)


def _decode_other(decoders: Decoders, file: memoryview, header: ImageHeader, out: Pixels, rules: ImageRules) -> Shape:
    """Decode by Pillow and copy into the slot."""
    with decoders.image.open(io.BytesIO(file), formats=[header.format.upper()]) as image:
        _check_opened(image, header, rules)
        turn = _turn_of(image, header, rules)
        pixels = _plain(image, rules)
        if header.format == "png" and (image.info.get("interlace") or not np.asarray(image.crop(_last_row(image))).any()):
            # Pillow's picture begins as zeros, and a row is written whole: another value in the last one proves that all came.
            check_png_rows(file)
    return _write(pixels if turn is None else turn(pixels), out, rules)


def _check_opened(image: Any, header: ImageHeader, rules: ImageRules) -> None:
    """Refuse an image that Pillow takes for another than its header says, or whose mode no colour rule knows."""
    size = (header.width, header.height)
    # Its TIFF reader turns a picture upright by itself, and tells the size that it then has.
    if image.size != (size[::-1] if header.orientation in (5, 6, 7, 8) else size):
        # The limits were checked on the header's.
        raise bad(expected=f"{size} pixels as its header says", got=image.size)
    if image.mode not in _MODES[rules.depth]:
        raise bad(expected="grey, palette or RGB", got=f"{header.format} of mode {image.mode}")


def _turn_of(image: Any, header: ImageHeader, rules: ImageRules) -> Turn | None:
    """Return how the loaded picture is turned to lie as the lane wants it, None when it does."""
    is_upright = rules.orientation == "exif"
    if header.format == "tiff":
        return None if is_upright else _AS_STORED.get(header.orientation)
    return _UPRIGHT.get(int(image.getexif().get(_EXIF_ORIENTATION, 1))) if is_upright else None


def _last_row(image: Any) -> tuple[int, int, int, int]:
    """Return the box (left, top, right, bottom) of an image's last row."""
    return 0, image.height - 1, image.width, image.height


def _plain(image: Any, rules: ImageRules) -> NDArray[Any]:
    """Return the pixels of a Pillow image as grey or RGB, without transparency."""
    has_alpha = image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info
    if has_alpha and rules.alpha != "drop":
        image.load()
        return blend(np.asarray(image.convert("RGBA")), _BACKGROUND[rules.alpha])
    # Without it Pillow blends or remaps in some modes.
    image.info.pop("transparency", None)
    image.load()
    if image.mode in ("P", "PA"):
        image = image.convert("RGB")
    if rules.depth == 16:
        return np.asarray(image)
    mode = "L" if rules.color == "grey" else "RGB"
    return np.asarray(image if image.mode == mode else image.convert(mode))


def _jpeg_orientation(decoders: Decoders, file: memoryview) -> int:
    """Return the EXIF orientation, 1 (upright) when there is none."""
    with decoders.image.open(io.BytesIO(file), formats=["JPEG"]) as image:
        return int(image.getexif().get(_EXIF_ORIENTATION, 1))


def _write(pixels: NDArray[Any], out: Pixels, rules: ImageRules) -> Shape:
    """Write grey or RGB pixels to the first bytes of *out* in the lane's colour, and return their shape."""
    shape = rules.shape(*pixels.shape[:2])
    write_pixels(pixels, rules.target(shape, out))
    return shape
