"""What an image file says about itself, read without decoding a pixel: format, size, bit depth, and whether it is whole.

Plain byte reading only; no decoder library (``decode.py``). Every loop is bounded, so that no file costs more than milliseconds.
JPEG and PNG are read here, BMP, GIF, WebP and TIFF in ``other_headers.py``.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from stages import other_headers
from stages.other_headers import ImageHeader, bad

# A 100 kB progressive JPEG with 200 scans costs 2 s to decode; encoders write about 10.
MAX_SCANS = 24
# 32 MiB of 64 KiB segments are 512; 8 million empty ones would keep this walk busy for seconds.
MAX_SEGMENTS = 2_048
# Encoders write chunks of 8 KiB and more, so 32 MiB are 4,096; the rest is head-room.
MAX_CHUNKS = 32_768

_JPEG_MAGIC = b"\xff\xd8\xff"
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_SOS, _EOI, _APP14 = 0xDA, 0xD9, 0xEE
# Frame headers SOF0..SOF15; C4, C8 and CC are tables that share the range.
_SOF = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Left, top, and steps right and down of each pass of an interlaced PNG.
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
# Rows are inflated only to be counted.
_INFLATE_BYTES = 1 << 18
# A marker may be preceded by any number of fill bytes.
_MARKER = re.compile(rb"\xff+([^\xff])", re.DOTALL)
# Inside coded data FF 00 is a byte and FF D0..D7 a restart: the scan ends at any other marker.
_SCAN_END = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)


def read_header(encoded: memoryview, formats: Sequence[str]) -> ImageHeader:
    """Return what *encoded* says of itself.

    Args:
        encoded: the whole file, unsigned bytes.
        formats: those that are taken.

    Raises:
        RequestError: BAD_IMAGE when it is of no such format, cut off, damaged where that can be seen, or too costly to decode.
    """
    found = _format_of(encoded)
    if found not in formats:
        raise bad(expected=f"{', '.join(formats)} (formats)", got=found or "the first bytes of no format we know")
    return _READERS[found](encoded)


def _format_of(encoded: memoryview) -> str:
    """Return the format that the first bytes say, "" for none."""
    head = bytes(encoded[:12])
    if head[:4] == b"RIFF" and head[8:] == b"WEBP":
        return "webp"
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "")


def _jpeg_header(encoded: memoryview) -> ImageHeader:
    """Walk the markers from start to end of image; the end must be there: half a JPEG is an error, not half a picture."""
    at, scans, header, adobe = 2, 0, None, False
    for _ in range(MAX_SEGMENTS):
        marker, at = _next_marker(encoded, at)
        if marker == _EOI:
            break
        length = _segment_length(encoded, at)
        if marker in _SOF:
            header = header or _frame_header(encoded[at + 2 : at + length])
        elif marker == _APP14 and length >= 14:
            adobe = adobe or bytes(encoded[at + 2 : at + 7]) == b"Adobe"
        at += length
        if marker == _SOS:
            scans += 1
            at = _end_of_scan(encoded, at)
    else:
        raise bad(expected=f"at most {MAX_SEGMENTS} JPEG segments", got="more")
    if header is None or scans == 0:
        raise bad(expected="a JPEG with a frame header and a scan", got="one without")
    if scans > MAX_SCANS:
        raise bad(expected=f"at most {MAX_SCANS} scans", got=scans)
    return replace(header, adobe=adobe)


def _next_marker(encoded: memoryview, at: int) -> tuple[int, int]:
    """Return the marker at *at* and where its segment starts."""
    found = _MARKER.match(encoded, at)
    if found is None:
        raise bad(expected=f"a JPEG marker at byte {at} of {len(encoded)}", got="none: cut off or damaged")
    return found[1][0], found.end()


def _segment_length(encoded: memoryview, at: int) -> int:
    """Return the length of the segment at *at*, its two length bytes included."""
    length = int.from_bytes(encoded[at : at + 2], "big")
    if length < 2 or at + length > len(encoded):
        raise bad(expected=f"a whole JPEG segment at byte {at} of {len(encoded)}", got=f"length {length}")
    return length


def _frame_header(segment: memoryview) -> ImageHeader:
    """Return size and depth from a frame header: precision u8, height u16, width u16, components u8."""
    if len(segment) < 6:
        raise bad(expected="a JPEG frame header of 6 bytes or more", got=len(segment))
    depth, height, width, channels = struct.unpack_from(">BHHB", segment)
    if channels not in (1, 3, 4):
        raise bad(expected="1, 3 or 4 JPEG components", got=channels)
    return ImageHeader("jpeg", width, height, depth, channels)


def _end_of_scan(encoded: memoryview, at: int) -> int:
    """Return where the marker after a scan's coded data is."""
    found = _SCAN_END.search(encoded, at)
    if found is None:
        raise bad(expected="a whole JPEG", got=f"{len(encoded)} bytes that end inside a scan")
    return found.start()


def _png_header(encoded: memoryview) -> ImageHeader:
    """Walk the chunks to IEND and check the CRC of the critical ones, which decoders skip for pixel data."""
    at, header = len(_PNG_MAGIC), None
    for _ in range(MAX_CHUNKS):
        kind, body, at = _chunk(encoded, at)
        if header is None:
            header = _png_size(kind, body)
        elif kind == b"IHDR":
            # Pillow believes the last one: the limits would have been checked on the wrong size.
            raise bad(expected="one IHDR", got="two")
        if kind == b"IEND":
            return header
    raise bad(expected=f"at most {MAX_CHUNKS} PNG chunks", got="more")


def _chunk(encoded: memoryview, at: int) -> tuple[bytes, memoryview, int]:
    """Return type and body of the chunk at *at* (length u32, type, body, CRC u32) and where the next one starts."""
    end = at + 12 + int.from_bytes(encoded[at : at + 4], "big")
    if end > len(encoded):
        raise bad(expected=f"a whole PNG chunk at byte {at}", got=f"a file of {len(encoded)} bytes")
    kind = bytes(encoded[at + 4 : at + 8])
    is_critical = kind[:1].isupper()
    if is_critical and zlib.crc32(encoded[at + 4 : end - 4]) != int.from_bytes(encoded[end - 4 : end], "big"):
        raise bad(expected=f"a PNG chunk at byte {at} that fits its CRC", got="damaged bytes")
    return kind, encoded[at + 8 : end - 4], end


def _png_size(kind: bytes, body: memoryview) -> ImageHeader:
    """Return the size from IHDR: width u32, height u32, depth u8, colour type u8 (bits: palette, colour, alpha)."""
    if kind != b"IHDR" or len(body) != 13:
        raise bad(expected="a PNG that begins with IHDR", got="another chunk")
    width, height, depth, color_type = struct.unpack_from(">IIBB", body)
    return ImageHeader("png", width, height, depth, channels=1 if color_type == 0 else 3)


def check_png_rows(encoded: memoryview) -> None:
    """Refuse a sound PNG whose pixel data end before its last row: decoders leave the others black.

    Costs a second inflation, a third of the decoding.
    """
    width, height, depth, color_type, _, _, interlaced = struct.unpack_from(">IIBBBBB", encoded, len(_PNG_MAGIC) + 8)
    pixel_bits = depth * (1, 0, 3, 1, 2, 0, 4)[color_type]
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    sizes = [(-(-(width - left) // right), -(-(height - top) // down)) for left, top, right, down in passes]
    expected = sum(rows * (1 + -(-columns * pixel_bits // 8)) for columns, rows in sizes if columns > 0)
    inflate, got, at, kind = zlib.decompressobj(), 0, len(_PNG_MAGIC), b""
    while kind != b"IEND" and got < expected:
        kind, body, at = _chunk(encoded, at)
        part = inflate.decompress(body, _INFLATE_BYTES) if kind == b"IDAT" else b""
        while part and got < expected:
            got += len(part)
            part = inflate.decompress(inflate.unconsumed_tail, _INFLATE_BYTES)
    if got < expected:
        raise bad(expected=f"{expected} bytes of PNG rows", got=got)


_MAGIC = {
    _JPEG_MAGIC: "jpeg", _PNG_MAGIC: "png", b"BM": "bmp", b"GIF87a": "gif", b"GIF89a": "gif", b"II*\0": "tiff", b"MM\0*": "tiff",
}  # fmt: skip
_READERS: dict[str, Callable[[memoryview], ImageHeader]] = {
    "jpeg": _jpeg_header,
    "png": _png_header,
    "bmp": other_headers.bmp_header,
    "gif": other_headers.gif_header,
    "webp": other_headers.webp_header,
    "tiff": other_headers.tiff_header,
}
