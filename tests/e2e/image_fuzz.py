"""Image files made wrong on purpose: stored ones and small ones of every format, cut, changed, mixed. Same seed, same files."""

from __future__ import annotations

import io
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

IMAGES = Path(__file__).parents[1] / "data" / "images"
# Larger ones would only make the run long; their formats are there as small ones too.
MAX_BASE_BYTES = 30_000
_KINDS = (
    ("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("BMP", {}), ("GIF", {}), ("TIFF", {}),
    ("WEBP", {}), ("WEBP", {"lossless": True}),
)  # fmt: skip
_MODES = ("RGB", "L", "P", "1", "RGBA", "LA", "CMYK", "I;16")


def stored_files() -> dict[str, bytes]:
    """Return name -> bytes of the stored images."""
    return {path.name: path.read_bytes() for path in sorted(IMAGES.iterdir()) if path.suffix not in (".json", ".md")}


def base_files() -> list[bytes]:
    """Return the files that the fuzz starts from: stored ones, and each format in each of the modes that it can hold."""
    picture = Image.fromarray(np.random.default_rng(5).integers(0, 256, (20, 30, 4)).astype(np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    files = [content for content in stored_files().values() if len(content) <= MAX_BASE_BYTES]
    for mode in _MODES:
        image = picture.convert("L").convert("I").convert(mode) if mode == "I;16" else picture.convert("RGB").convert(mode)
        for kind, options in _KINDS:
            file = io.BytesIO()
            try:
                image.save(file, kind, exif=exif, **options)
            except (OSError, ValueError):
                continue
            files.append(file.getvalue())
    return files


def fuzzed(count: int, seed: int) -> Iterator[bytes]:
    """Yield *count* wrong files."""
    rng = random.Random(seed)
    bases = base_files()
    for _ in range(count):
        file = bytearray(rng.choice(bases))
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            rng.choice(_CHANGES)(file, rng, bases)
        if rng.random() < 0.7:
            _seal(file)
        yield bytes(file)


def _seal(file: bytearray) -> None:
    """Make the checksums of a PNG fit again: otherwise nearly every change ends there, and none reaches the decoder."""
    if not file.startswith(b"\x89PNG\r\n\x1a\n"):
        return
    at = 8
    while at + 12 <= len(file):
        end = at + 12 + int.from_bytes(file[at : at + 4], "big")
        if end > len(file):
            return
        file[end - 4 : end] = zlib.crc32(file[at + 4 : end - 4]).to_bytes(4, "big")
        at = end


def _flip(file: bytearray, rng: random.Random, bases: list[bytes]) -> None:
    """Change a few bytes anywhere."""
    for _ in range(rng.randint(1, 8)):
        if file:
            file[rng.randrange(len(file))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _word(file: bytearray, rng: random.Random, bases: list[bytes]) -> None:
    """Write an extreme number over a place near the front, where sizes are."""
    size = rng.choice((1, 2, 4))
    at = rng.randrange(max(1, min(len(file), 200)))
    number = rng.choice((0, 1, 2, 0x7FFFFFFF, 0xFFFFFFFF, 8192, 8193, 65_535))
    file[at : at + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, rng.choice(("big", "little")))


def _cut(file: bytearray, rng: random.Random, bases: list[bytes]) -> None:
    """End it early."""
    del file[rng.randrange(len(file) + 1) :]


def _drop(file: bytearray, rng: random.Random, bases: list[bytes]) -> None:
    """Take a piece out."""
    at = rng.randrange(len(file) + 1)
    del file[at : at + rng.choice((1, 2, 4, 12, 100))]


def _repeat(file: bytearray, rng: random.Random, bases: list[bytes]) -> None:
    """Repeat a piece, up to many times."""
    at = rng.randrange(len(file) + 1)
    piece = file[at : at + rng.choice((1, 4, 16, 200))]
    file[at:at] = piece * rng.choice((1, 1, 2, 50))


def _splice(file: bytearray, rng: random.Random, bases: list[bytes]) -> None:
    """Go on with a piece of another file."""
    other = rng.choice(bases)
    file[rng.randrange(len(file) + 1) :] = other[rng.randrange(len(other)) :]


_CHANGES: tuple[Callable[[bytearray, random.Random, list[bytes]], None], ...] = (
    _flip,
    _flip,
    _word,
    _cut,
    _drop,
    _repeat,
    _splice,
)
