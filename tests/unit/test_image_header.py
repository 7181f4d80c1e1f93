"""What is read of a file before a decoder sees it: sizes, and the files that would cost more than their picture."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image

from schemas.config_stage import IMAGE_FORMATS
from schemas.status import Code, RequestError
from stages.image_header import read_header
from stages.other_headers import MAX_GIF_BLOCKS, MAX_TIFF_TAGS, ImageHeader

WIDTH, HEIGHT = 40, 24
PICTURE = Image.fromarray(np.random.default_rng(4).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8))


def encoded(kind: str, image: Image.Image = PICTURE, **options: object) -> bytes:
    """Return *image* as a file's bytes."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def read(file: bytes) -> ImageHeader:
    """Return what *file* says of itself."""
    return read_header(memoryview(file), IMAGE_FORMATS)


def refusal(file: bytes) -> str:
    """Return with what words *file* is refused."""
    with pytest.raises(RequestError) as caught:
        read(file)
    assert caught.value.code is Code.BAD_IMAGE
    return caught.value.message


def tiff(*tags: tuple[int, int, int, int]) -> bytes:
    """Return a little-endian TIFF of one directory with these tags: number, type, count, value."""
    rows = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + rows + bytes(64)


def gif(screen: tuple[int, int], frame: tuple[int, int, int, int], blocks: bytes = b"\x02\x4c\x01\0") -> bytes:
    """Return a GIF with one picture (left, top, width, height) of two-colour pixels."""
    head = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + bytes([0, 0, 0, 255, 255, 255])
    return head + b"\x2c" + struct.pack("<HHHHB", *frame, 0) + b"\x02" + blocks + b"\x3b"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF"])
def test_each_format_tells_its_size(kind: str) -> None:
    """Width and height, and 8 bits a channel."""
    header = read(encoded(kind))

    assert (header.format, header.width, header.height, header.bit_depth) == (kind.lower(), WIDTH, HEIGHT, 8)


@pytest.mark.parametrize("options", [{"lossless": True}, {"lossless": False}, {"exif": Image.Exif()}, {"icc_profile": b"1"}])
def test_each_kind_of_webp_tells_its_size(options: dict[str, object]) -> None:
    """Lossless, lossy, extended."""
    exif = Image.Exif()
    exif[0x0112] = 6
    header = read(encoded("WEBP", **{**options, **({"exif": exif} if "exif" in options else {})}))

    assert (header.width, header.height) == (WIDTH, HEIGHT)


def test_a_bmp_with_the_top_row_first_has_a_positive_height() -> None:
    """It is stored as a negative one."""
    file = bytearray(encoded("BMP"))
    file[22:26] = struct.pack("<i", -HEIGHT)

    assert read(bytes(file)).height == HEIGHT


def test_a_run_length_bmp_is_refused() -> None:
    """Its decoder is a loop in Python."""
    file = bytearray(encoded("BMP"))
    file[30:34] = struct.pack("<I", 1)

    assert "without compression" in refusal(bytes(file))


def test_a_gifs_canvas_holds_its_screen_and_its_first_picture() -> None:
    """A picture beyond the screen makes the canvas larger: the bomb is told from its size."""
    header = read(gif((1, 1), (65_000, 65_000, 1, 1)))

    assert (header.width, header.height) == (65_001, 65_001)


def test_a_gif_without_a_picture_is_refused() -> None:
    """Or with an empty one."""
    assert "GIF block" in refusal(b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0, 0, 0) + b"\x3b")
    assert "1 pixel or more" in refusal(gif((1, 1), (0, 0, 0, 1)))


def test_endless_small_blocks_of_a_gif_are_refused() -> None:
    """Walking them must not cost seconds."""
    assert "GIF blocks" in refusal(gif((1, 1), (0, 0, 1, 1), b"\1\0" * (MAX_GIF_BLOCKS + 1)))


@pytest.mark.parametrize(
    ("tag", "words"),
    [
        ((259, 3, 1, 7), "compression"),
        ((339, 3, 1, 3), "sample format"),
        ((262, 3, 1, 6), "photometric"),
        ((277, 3, 1, 255), "samples per pixel"),
        ((259, 3, 1, 5), "compression"),
        ((322, 3, 1, 65_535), "strips"),
        ((273, 4, 25, 0), "strips"),
        ((278, 3, 1, 0), "strips"),
        ((258, 3, 2, 8 | 16 << 16), "one depth"),
        ((700, 1, 4_000_000, 8), "no larger than the file"),
    ],
)
def test_a_tiff_that_could_cost_more_than_its_picture_is_refused(tag: tuple[int, int, int, int], words: str) -> None:
    """Compressions, floats, YCbCr, tiles, more strips than rows, mixed depths, tags beyond the file."""
    tags = {256: (3, 1, WIDTH), 257: (3, 1, HEIGHT)}
    if words != "strips":
        tags[273] = (4, 1, 8)
    tags[tag[0]] = tag[1:]

    assert words in refusal(tiff(*[(number, *rest) for number, rest in tags.items()]))


def test_a_tiff_without_all_its_strips_is_refused() -> None:
    """The missing rows would be black."""
    size = [(256, 3, 1, WIDTH), (257, 3, 1, HEIGHT), (278, 3, 1, 10)]

    assert read(tiff(*size, (273, 4, 3, 8))).height == HEIGHT
    assert "a TIFF of 3 strips" in refusal(tiff(*size, (273, 4, 2, 8)))


def test_a_tiff_of_many_tags_is_refused() -> None:
    """None has that many."""
    assert "TIFF tags" in refusal(tiff(*[(256, 3, 1, 8)] * (MAX_TIFF_TAGS + 1)))


def test_sixteen_bit_grey_is_told_from_everything_else_with_sixteen_bits() -> None:
    """Alpha and white-as-zero are not plain grey."""
    wide = Image.fromarray(np.zeros((HEIGHT, WIDTH), np.uint16))

    assert [(read(encoded(kind, wide)).bit_depth, read(encoded(kind, wide)).channels) for kind in ("PNG", "TIFF")] == [
        (16, 1)
    ] * 2
    assert read(tiff((256, 3, 1, 8), (257, 3, 1, 8), (258, 3, 1, 16), (262, 3, 1, 0), (273, 4, 1, 8))).channels == 3


def test_a_jpeg_of_two_components_is_refused() -> None:
    """Nothing says what they are."""
    file = bytearray(encoded("JPEG"))
    at = file.index(b"\xff\xc0")
    file[at + 9] = 2

    assert "components" in refusal(bytes(file))
