"""Images become pixels by one rule for each conversion; whatever a peer sends ends in pixels or in a RequestError."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from schemas.config_stage import IMAGE_FORMATS
from schemas.status import Code, ConfigError, RequestError
from stages.decode import decode_image
from stages.image_header import MAX_CHUNKS, MAX_SCANS, MAX_SEGMENTS
from stages.image_libraries import load_decoders
from stages.image_rules import MAX_ENCODED_BYTES, ImageRules

HEIGHT, WIDTH = 24, 40
PARTS = Path(__file__).parents[2] / "stages" / "demo" / "parts"


def colors() -> NDArray[np.uint8]:
    """Return a smooth colour picture (HEIGHT, WIDTH, 3) with saturated places, where Y and luma differ most."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    planes = (255 * (x > 20), 255 - 6 * x, 10 * y)
    return np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8)


def luma(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the stated grey rule, written out."""
    red, green, blue = (rgb[..., at].astype(np.uint32) for at in range(3))
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).astype(np.uint8)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    """Return *image* as a file's bytes."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def jpeg(**options: object) -> bytes:
    """Return the colour picture as a JPEG."""
    return encoded(Image.fromarray(colors()), "JPEG", **options)


def decode(file: bytes, *, room: int = 30_000, **rules: object) -> NDArray[np.generic]:
    """Return the pixels that decode_image writes for *file*, given read-only as a slot's input is."""
    out = np.full(room, 170, np.uint8)
    made = ImageRules(**{"color": "grey", "formats": IMAGE_FORMATS, "max_pixels": 10_000, **rules})
    shape = decode_image(np.frombuffer(file, np.uint8), out, made)
    return made.target(shape, out)


def refusal(file: bytes, **options: object) -> RequestError:
    """Return the error with which *file* is refused."""
    with pytest.raises(RequestError) as caught:
        decode(file, **options)
    return caught.value


def chunk(kind: bytes, body: bytes) -> bytes:
    """Return a PNG chunk."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def ihdr(width: int, height: int, depth: int = 8) -> bytes:
    """Return a PNG's header chunk, grey."""
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0))


@pytest.mark.parametrize("subsampling", [0, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_becomes_rgb_as_pillow_decodes_it(subsampling: int, progressive: bool) -> None:
    """simplejpeg is faster, not different."""
    file = jpeg(subsampling=subsampling, progressive=progressive)

    assert np.array_equal(decode(file, color="rgb"), np.asarray(Image.open(io.BytesIO(file))))


def test_a_colour_jpeg_becomes_grey_by_the_luma_of_its_rgb() -> None:
    """Not by its stored Y, which is another number where colours are saturated."""
    file = jpeg(quality=30)

    assert np.array_equal(decode(file), luma(decode(file, color="rgb")))
    assert not np.array_equal(decode(file), simplejpeg.decode_jpeg(file, "GRAY")[..., 0])


def test_a_jpeg_lies_in_the_first_bytes_of_the_slot_and_no_further() -> None:
    """What is behind it belongs to nobody."""
    out = np.full(10_000, 170, np.uint8)

    shape = decode_image(memoryview(jpeg()), out, ImageRules())

    assert shape == (HEIGHT, WIDTH, 3)
    assert (out[HEIGHT * WIDTH * 3 :] == 170).all()


def test_a_png_becomes_grey_by_the_same_rule_as_a_jpeg() -> None:
    """One rule, whatever the format."""
    assert np.array_equal(decode(encoded(Image.fromarray(colors()))), luma(colors()))


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_grey_image_becomes_colour_by_repeating_it(kind: str) -> None:
    """And grey again gives the same values."""
    file = encoded(Image.fromarray(luma(colors())), kind)

    assert np.array_equal(decode(file, color="rgb"), np.repeat(decode(file)[..., None], 3, axis=2))


def test_alpha_is_dropped_not_blended() -> None:
    """A transparent pixel keeps its colour."""
    alpha = np.zeros((HEIGHT, WIDTH, 1), np.uint8)
    file = encoded(Image.fromarray(np.concatenate([colors(), alpha], axis=2)))

    assert np.array_equal(decode(file, color="rgb"), colors())


@pytest.mark.parametrize("mode", ["1", "P", "LA"])
def test_other_png_modes_follow_the_same_rules(mode: str) -> None:
    """Bits, palettes with a transparent colour, grey with alpha."""
    image = Image.fromarray(colors()).convert("L").convert(mode) if mode == "LA" else Image.fromarray(colors()).convert(mode)
    file = encoded(image, transparency=0) if mode == "P" else encoded(image)
    expected = luma(np.asarray(image.convert("RGB")))

    assert np.array_equal(decode(file), expected)


def cmyk() -> tuple[Image.Image, NDArray[np.uint8]]:
    """Return the colour picture as inks, 255 = full, and the RGB that the rule gives for them."""
    image = Image.fromarray(colors()).convert("CMYK")
    free = 255 - np.asarray(image).astype(np.uint32)
    return image, ((free[..., :3] * free[..., 3:] + 127) // 255).astype(np.uint8)


def test_a_cmyk_jpeg_with_adobes_marker_is_taken_as_inverted() -> None:
    """R = C K / 255 of the stored values; within the loss of the JPEG."""
    image, expected = cmyk()
    file = encoded(image, "JPEG", quality=100, subsampling=0)

    assert b"Adobe" in file
    assert np.abs(decode(file, color="rgb").astype(int) - expected).max() <= 3


def test_a_cmyk_jpeg_without_the_marker_is_taken_as_it_is() -> None:
    """The same picture written the other way round, and its marker taken out, is the same picture."""
    image, expected = cmyk()
    file = encoded(Image.fromarray(255 - np.asarray(image), "CMYK"), "JPEG", quality=100, subsampling=0)
    at = file.index(b"\xff\xee")
    plain = file[:at] + file[at + 2 + int.from_bytes(file[at + 2 : at + 4], "big") :]

    assert np.abs(decode(plain, color="rgb").astype(int) - expected).max() <= 3


@pytest.mark.parametrize("kind", ["BMP", "GIF", "WEBP", "TIFF"])
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1"])
@pytest.mark.parametrize("color", ["grey", "rgb"])
def test_each_format_gives_the_pixels_that_went_in(kind: str, mode: str, color: str) -> None:
    """By the same colour rules as a PNG."""
    image = Image.fromarray(colors()).convert(mode)
    file = encoded(image, kind, **({"lossless": True, "exact": True} if kind == "WEBP" else {}))
    with Image.open(io.BytesIO(file)) as stored:
        rgb = np.asarray(stored.convert("RGB"))

    assert np.array_equal(decode(file, color=color), luma(rgb) if color == "grey" else rgb)


def test_of_an_animation_the_first_picture_is_taken() -> None:
    """In each format that has them."""
    first, second = Image.fromarray(colors()), Image.fromarray(255 - colors())
    for kind, options in (("PNG", {}), ("WEBP", {"lossless": True}), ("GIF", {}), ("TIFF", {})):
        file = encoded(first, kind, save_all=True, append_images=[second], **options)
        alone = encoded(first, kind, **options)

        assert np.array_equal(decode(file, color="rgb"), decode(alone, color="rgb")), kind


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_stay_as_they_are_where_the_lane_says_so(kind: str) -> None:
    """UINT16 pixels, in the machine's own byte order."""
    wide = np.arange(HEIGHT * WIDTH, dtype=np.uint16).reshape(HEIGHT, WIDTH) * 68

    pixels = decode(encoded(Image.fromarray(wide), kind), depth=16)

    assert pixels.dtype == np.dtype("<u2")
    assert np.array_equal(pixels, wide)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP"])
def test_eight_bits_are_refused_where_the_lane_says_sixteen(kind: str) -> None:
    """Nothing says how to stretch them."""
    error = refusal(encoded(Image.fromarray(luma(colors())), kind), depth=16)

    assert (error.code, error.expected) == (Code.BAD_IMAGE, "16 bits a channel (depth)")


def test_sixteen_bits_with_alpha_are_refused() -> None:
    """Pillow would squeeze them to 8 without a word."""
    rows = b"".join(b"\0" + bytes(8 * 4) for _ in range(8))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 16, 4, 0, 0, 0))
    file = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")

    assert refusal(file, depth=16).code is Code.BAD_IMAGE


@pytest.mark.parametrize(("alpha", "background"), [("black", 0), ("white", 255)])
@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_transparency_is_laid_over_the_lanes_background(alpha: str, background: int, kind: str) -> None:
    """(c a + b (255 - a) + 127) // 255."""
    opacity = np.linspace(0, 255, HEIGHT * WIDTH).astype(np.uint8).reshape(HEIGHT, WIDTH, 1)
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    file = encoded(Image.fromarray(np.concatenate([colors(), opacity], axis=2)), kind, **options)
    part = opacity.astype(np.uint32)
    expected = ((colors() * part + background * (255 - part) + 127) // 255).astype(np.uint8)

    assert np.array_equal(decode(file, color="rgb", alpha=alpha), expected)
    assert np.array_equal(decode(file, alpha=alpha), luma(expected))


def test_a_transparent_colour_of_a_palette_is_laid_over_the_background() -> None:
    """As alpha is."""
    image = Image.fromarray(colors()).convert("P")
    file = encoded(image, "PNG", transparency=int(np.asarray(image)[0, 0]))
    transparent = np.asarray(image) == np.asarray(image)[0, 0]

    pixels = decode(file, color="rgb", alpha="white")

    assert (pixels[transparent] == 255).all()
    assert np.array_equal(pixels[~transparent], np.asarray(image.convert("RGB"))[~transparent])


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
@pytest.mark.parametrize("color", ["grey", "rgb"])
@pytest.mark.parametrize("value", range(1, 9))
def test_exif_turns_a_picture_upright_only_when_the_lane_says_so(kind: str, color: str, value: int) -> None:
    """As stored is the default for every format, and the same picture."""
    exif = Image.Exif()
    exif[0x0112] = value
    options = {"lossless": True} if kind == "WEBP" else {}
    file = encoded(Image.fromarray(colors()), kind, exif=exif, **options)
    stored = decode(encoded(Image.fromarray(colors()), kind, **options), color=color)
    turns = {
        1: stored, 2: stored[:, ::-1], 3: np.rot90(stored, 2), 4: stored[::-1], 5: np.rot90(stored[:, ::-1], 1),
        6: np.rot90(stored, -1), 7: np.rot90(stored[:, ::-1], -1), 8: np.rot90(stored, 1),
    }  # fmt: skip

    assert np.array_equal(decode(file, color=color), stored)
    assert np.array_equal(decode(file, color=color, orientation="exif"), turns[value])


def test_a_real_part_photo_is_decoded_as_pillow_does() -> None:
    """The demo's pictures."""
    path = PARTS / "part_101_00.png"

    assert np.array_equal(decode(path.read_bytes(), max_pixels=128 * 128), np.asarray(Image.open(path)))


def test_other_formats_are_refused_by_their_first_bytes() -> None:
    """The error names the formats that are taken."""
    error = refusal(encoded(Image.fromarray(colors()), "BMP"), formats=("jpeg", "png"))

    assert (error.code, error.expected, error.got) == (Code.BAD_IMAGE, "jpeg, png (formats)", "bmp")
    assert refusal(b"").code is refusal(b"%PDF-1.7").code is Code.BAD_IMAGE


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "WEBP", "TIFF"])
def test_half_an_image_is_refused_wherever_it_is_cut(kind: str) -> None:
    """Never half a picture."""
    file = encoded(Image.fromarray(colors()), kind)

    assert {refusal(file[:size]).code for size in range(len(file))} == {Code.BAD_IMAGE}


def test_half_a_gif_is_refused_wherever_its_picture_is_cut() -> None:
    """Its last byte says only that no other picture follows."""
    file = encoded(Image.fromarray(colors()), "GIF")

    assert {refusal(file[:size]).code for size in range(len(file) - 1)} == {Code.BAD_IMAGE}
    assert np.array_equal(decode(file[:-1]), decode(file))


def test_a_cut_jpeg_with_its_end_put_back_is_refused() -> None:
    """The marker is there, the coded data is not."""
    file = jpeg(quality=95)

    assert refusal(file[: len(file) // 2] + b"\xff\xd9").code is Code.BAD_IMAGE


@pytest.mark.parametrize("value", [0, 200])
@pytest.mark.parametrize("interlaced", [False, True])
def test_a_png_without_its_last_rows_is_refused(value: int, interlaced: bool) -> None:
    """Each checksum fits and the end is there; only the rows are not. A whole one may be as dark as it likes."""
    rows = b"".join([b"\0" + bytes([value] * 8)] * 8)
    if interlaced:
        rows = bytes(2) + bytes(2) + bytes(3) + bytes(6) + bytes(10) + bytes(20) + b"".join([b"\0" + bytes([value] * 8)] * 4)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, interlaced))

    def file(size: int) -> bytes:
        return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows[:size])) + chunk(b"IEND", b"")

    assert decode(file(len(rows))).shape == (8, 8)
    assert {refusal(file(size)).code for size in range(len(rows))} == {Code.BAD_IMAGE}


def test_a_flipped_bit_in_a_png_is_seen() -> None:
    """Decoders skip the checksum of pixel data; a verdict on damaged pixels is worse than none."""
    file = bytearray(encoded(Image.fromarray(colors())))
    file[len(file) // 2] ^= 1

    assert refusal(bytes(file)).code is Code.BAD_IMAGE


def test_more_pixels_than_the_lane_allows_are_refused_before_decoding() -> None:
    """The header alone is enough: there are no pixels in this file."""
    error = refusal(b"\x89PNG\r\n\x1a\n" + ihdr(101, 100) + chunk(b"IEND", b""), max_pixels=10_000)

    assert error.code is Code.TOO_LARGE
    assert "max_pixels" in str(error.expected)


def test_a_long_side_is_refused_however_few_pixels_there_are() -> None:
    """8192 is the most."""
    assert refusal(b"\x89PNG\r\n\x1a\n" + ihdr(8193, 1) + chunk(b"IEND", b"")).code is Code.TOO_LARGE


def test_a_bomb_behind_a_second_header_is_refused() -> None:
    """Pillow believes the last IHDR; ours is checked on the first."""
    bomb = b"\x89PNG\r\n\x1a\n" + ihdr(8, 8) + ihdr(60_000, 60_000) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")

    assert refusal(bomb).code is Code.BAD_IMAGE


def test_too_many_encoded_bytes_are_refused() -> None:
    """32 MiB, before anything is looked at."""
    assert refusal(bytes(MAX_ENCODED_BYTES + 1)).code is Code.TOO_LARGE


def test_pixels_that_do_not_fit_into_the_slot_are_refused() -> None:
    """Even when max_pixels would allow them."""
    assert refusal(jpeg(), color="rgb", room=HEIGHT * WIDTH).code is Code.TOO_LARGE


def test_sixteen_bits_a_channel_are_refused() -> None:
    """Nothing says how to fit them into eight."""
    wide = np.zeros((HEIGHT, WIDTH), np.uint16)

    assert refusal(encoded(Image.fromarray(wide))).got == 16


def test_a_progressive_jpeg_with_too_many_scans_is_refused() -> None:
    """Scans cost a decode of the whole picture each."""
    file = jpeg(progressive=True)
    last = file.rindex(b"\xff\xda")
    scans = file[last:-2] * MAX_SCANS

    error = refusal(file[:-2] + scans + b"\xff\xd9")

    assert error.expected == f"at most {MAX_SCANS} scans"


def test_endless_empty_segments_are_refused() -> None:
    """Walking them must not cost seconds."""
    segments = b"\xff\xfe\x00\x02" * (MAX_SEGMENTS + 1)

    assert "segments" in str(refusal(b"\xff\xd8" + segments + jpeg()[2:]).expected)


def test_endless_empty_chunks_are_refused() -> None:
    """The same for a PNG."""
    chunks = chunk(b"tEXt", b"") * (MAX_CHUNKS + 1)

    assert "chunks" in str(refusal(b"\x89PNG\r\n\x1a\n" + ihdr(8, 8) + chunks).expected)


def test_a_refusal_tells_no_memory_address() -> None:
    """Pillow's own message names its file object."""
    unknown_depth = b"\x89PNG\r\n\x1a\n" + ihdr(8, 8, depth=3) + chunk(b"IDAT", zlib.compress(bytes(72))) + chunk(b"IEND", b"")

    assert refusal(unknown_depth).got == "cannot identify image file"


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(["PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF"]),
    color=st.sampled_from(["grey", "rgb"]),
    orientation=st.sampled_from(["stored", "exif"]),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_damaged_bytes_end_in_pixels_or_in_a_refusal(
    kind: str, color: str, orientation: str, changes: list[tuple[float, int]]
) -> None:
    """Never in another exception."""
    file = bytearray(encoded(Image.fromarray(colors()), kind))
    for place, value in changes:
        file[int(place * len(file))] = value

    try:
        outcome: object = decode(bytes(file), color=color, orientation=orientation).ndim
    except RequestError as error:
        outcome = error.code

    assert outcome in (2 if color == "grey" else 3, Code.BAD_IMAGE, Code.TOO_LARGE)


def test_a_missing_image_library_is_named_with_the_extra_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start of the stage, not at the first picture."""
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    load_decoders.cache_clear()

    with pytest.raises(ConfigError, match=r"pip install 'slotline\[cpu\]'"):
        load_decoders()
