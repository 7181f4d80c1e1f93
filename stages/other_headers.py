"""What BMP, GIF, WebP and TIFF files say about themselves before Pillow sees them. See ``image_header.py``.

Each reader refuses what would cost Pillow memory or time beyond the picture's own size: its WebP reader takes two canvases when
it opens a file, its run-length BMP decoder is a Python loop, its TIFF reader believes any number of strips. Compressed TIFFs go
to libtiff, which writes about damaged files to stderr, where our log is.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from schemas.status import Code, RequestError

# 32 MiB in sub-blocks of 255 bytes, as encoders write them; blocks of one byte would keep the walk busy for seconds.
MAX_GIF_BLOCKS = 140_000
MAX_TIFF_TAGS = 256

_BMP_HEADER_BYTES = (12, 40, 52, 56, 64, 108, 124)
_BMP_PLAIN = (0, 3)
_GIF_EXTENSION, _GIF_IMAGE = 0x21, 0x2C
# Bytes of one item by type number; those of the types that Pillow does not know are never read.
_TIFF_ITEM_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
_TIFF_LETTERS = {3: "H", 4: "I"}
# Enough for the depth of each channel.
_TIFF_VALUES = 8
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _STRIPS, _ORIENTATION, _SAMPLES, _STRIP_ROWS, _PLANES, _SAMPLE_FORMAT = (
    256, 257, 258, 259, 262, 273, 274, 277, 278, 284, 339,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Format and size in pixels as stored (before any turn).

    Attributes:
        bit_depth: bits of one channel.
        channels: 1 for plain grey, 4 for a CMYK JPEG, else 3.
        adobe: of a JPEG: Adobe's marker is there, so CMYK is stored inverted.
        orientation: of a TIFF, whose reader turns the picture by itself.
    """

    format: Literal["jpeg", "png", "bmp", "gif", "webp", "tiff"]
    width: int
    height: int
    bit_depth: int = 8
    channels: int = 3
    adobe: bool = False
    orientation: int = 1


def bmp_header(encoded: memoryview) -> ImageHeader:
    """Read the size: 14 bytes of file header, then header size u32, width i32, height i32 (negative: top row first), ..."""
    (size,) = struct.unpack("<I", _part(encoded, 14, 4))
    if size not in _BMP_HEADER_BYTES:
        raise bad(expected="a BMP header of a known size", got=size)
    if size == 12:
        width, height = struct.unpack("<HH", _part(encoded, 18, 4))
        return ImageHeader("bmp", width, height)
    width, height, _, _, compression = struct.unpack("<IiHHI", _part(encoded, 18, 16))
    if compression not in _BMP_PLAIN:
        raise bad(expected="a BMP without compression", got=f"compression {compression}")
    return ImageHeader("bmp", width, abs(height))


def gif_header(encoded: memoryview) -> ImageHeader:
    """Walk to the end of the first picture, which must be whole; the canvas is large enough for the screen and that picture."""
    width, height, flags = struct.unpack("<HHB", _part(encoded, 6, 5))
    at = 13 + _table_bytes(flags)
    blocks = 0
    while (kind := _part(encoded, at, 1)[0]) == _GIF_EXTENSION:
        at, blocks = _after_blocks(encoded, at + 2, blocks)
    if kind != _GIF_IMAGE:
        raise bad(expected=f"a GIF block at byte {at}", got=f"the byte {kind}")
    left, top, wide, high, flags = struct.unpack("<HHHHB", _part(encoded, at + 1, 9))
    if wide == 0 or high == 0:
        raise bad(expected="a GIF with a picture of 1 pixel or more", got=f"{wide} x {high}")
    _after_blocks(encoded, at + 11 + _table_bytes(flags), blocks)
    return ImageHeader("gif", max(width, left + wide), max(height, top + high))


def _table_bytes(flags: int) -> int:
    """Return the size of a colour table: 3 bytes for each of 2 to 256 entries, 0 when there is none."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_blocks(encoded: memoryview, at: int, blocks: int) -> tuple[int, int]:
    """Return where a chain of sub-blocks (size u8, bytes) has ended, at an empty one, and how many blocks there were."""
    while blocks < MAX_GIF_BLOCKS:
        size = _part(encoded, at, 1)[0]
        at, blocks = at + 1 + size, blocks + 1
        if size == 0:
            return at, blocks
    raise bad(expected=f"at most {MAX_GIF_BLOCKS} GIF blocks", got="more")


def webp_header(encoded: memoryview) -> ImageHeader:
    """Read the canvas from the first chunk: lossy, lossless or extended."""
    (size,) = struct.unpack("<I", _part(encoded, 4, 4))
    if size + 8 > len(encoded):
        raise bad(expected=f"a WebP of {size + 8} bytes", got=len(encoded))
    kind = bytes(_part(encoded, 12, 18))
    if kind.startswith(b"VP8 ") and kind[11:14] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", kind, 14)
        return ImageHeader("webp", width & 0x3FFF, height & 0x3FFF)
    if kind.startswith(b"VP8L") and kind[8] == 0x2F:
        (bits,) = struct.unpack_from("<I", kind, 9)
        return ImageHeader("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind.startswith(b"VP8X"):
        return ImageHeader("webp", int.from_bytes(kind[12:15], "little") + 1, int.from_bytes(kind[15:18], "little") + 1)
    raise bad(expected="a WebP that begins with a picture", got="another chunk")


def tiff_header(encoded: memoryview) -> ImageHeader:
    """Read the first directory: plain grey, palette or RGB, of unsigned integers, in strips without compression."""
    order = "<" if encoded[0] == ord("I") else ">"
    (at,) = struct.unpack(f"{order}I", _part(encoded, 4, 4))
    tags = _tiff_tags(encoded, at, order)
    width, height, samples = _one(tags, _WIDTH, 0), _one(tags, _HEIGHT, 0), _one(tags, _SAMPLES, 1)
    depths = set(tags.get(_BITS, (1, (1,)))[1])
    for name, tag, allowed in (
        ("compression", _COMPRESSION, (1,)),
        ("sample format", _SAMPLE_FORMAT, (1,)),
        ("photometric", _PHOTOMETRIC, (0, 1, 2, 3)),
        ("samples per pixel", _SAMPLES, (1, 2, 3, 4)),
    ):
        if (found := _one(tags, tag, 1)) not in allowed:
            raise bad(expected=f"a TIFF of {name} {', '.join(map(str, allowed))}", got=found)
    # Fewer strips would leave rows black, more would only cost time; a tiled TIFF has none.
    strip_rows, planes = min(_one(tags, _STRIP_ROWS, height), height), samples if _one(tags, _PLANES, 1) == 2 else 1
    strips = -(-height // strip_rows) * planes if strip_rows else 0
    if (found := tags.get(_STRIPS, (0, ()))[0]) != strips or strips == 0:
        raise bad(expected=f"a TIFF of {strips} strips", got=found)
    if len(depths) != 1:
        raise bad(expected="a TIFF with one depth for all channels", got=sorted(depths))
    # White-is-zero is inverted by Pillow with 8 bits, but not with 16.
    is_grey = samples == 1 and _one(tags, _PHOTOMETRIC, 1) == 1
    return ImageHeader("tiff", width, height, depths.pop(), channels=1 if is_grey else 3, orientation=_one(tags, _ORIENTATION, 1))


def _tiff_tags(encoded: memoryview, at: int, order: str) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Return count and first values of a directory's integer tags: tag u16, type u16, count u32, value or offset u32 each."""
    (entries,) = struct.unpack(f"{order}H", _part(encoded, at, 2))
    if entries > MAX_TIFF_TAGS:
        raise bad(expected=f"at most {MAX_TIFF_TAGS} TIFF tags", got=entries)
    tags: dict[int, tuple[int, tuple[int, ...]]] = {}
    all_bytes = 0
    for entry in range(at + 2, at + 2 + 12 * entries, 12):
        tag, kind, count, start = struct.unpack(f"{order}HHII", _part(encoded, entry, 12))
        item_bytes = _TIFF_ITEM_BYTES.get(kind, 0)
        all_bytes += item_bytes * count
        if kind in _TIFF_LETTERS:
            start = entry + 8 if item_bytes * count <= 4 else start
            first = min(count, _TIFF_VALUES)
            tags[tag] = count, struct.unpack(f"{order}{first}{_TIFF_LETTERS[kind]}", _part(encoded, start, item_bytes * first))
    # Pillow copies each tag's bytes: many that point to the same ones would fill the memory.
    if all_bytes > len(encoded):
        raise bad(expected="TIFF tags no larger than the file", got=f"{all_bytes} bytes")
    return tags


def _one(tags: dict[int, tuple[int, tuple[int, ...]]], tag: int, default: int) -> int:
    """Return the first value of *tag*."""
    _, values = tags.get(tag, (0, ()))
    return values[0] if values else default


def _part(encoded: memoryview, at: int, size: int) -> memoryview:
    """Return *size* bytes at *at*, all of which must be there."""
    if at + size > len(encoded):
        raise bad(expected=f"a whole file of {at + size} bytes or more", got=len(encoded))
    return encoded[at : at + size]


def bad(*, expected: object, got: object) -> RequestError:
    """Return the refusal of a damaged or hostile image."""
    return RequestError(Code.BAD_IMAGE, field="image", expected=expected, got=got)
