"""Raw frames become the pixels that their picture as a file would give; what is no such frame is refused by field."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from schemas.config_stage import DEEP_PIXEL_FORMATS
from schemas.config_stage import PIXEL_FORMATS as NAMES
from schemas.status import Code, RequestError
from stages.image_rules import ImageRules
from stages.pixel_formats import PIXEL_FORMATS
from stages.raw_pixels import raw_pixels

COLORS = np.random.default_rng(1).integers(0, 256, (6, 8, 3)).astype(np.uint8)
TWELVE_BITS = np.random.default_rng(2).integers(0, 4096, (6, 8)).astype(np.uint16)
# 0x123, 0xABC, 0xFFF, 0x001, once in each packing.
PACKED = {"Mono12p": "23c1abff1f00", "Mono12Packed": "12c3abff1f00"}


def luma(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the stated grey rule, written out."""
    red, green, blue = (rgb[..., at].astype(np.uint32) for at in range(3))
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).astype(np.uint8)


def made(frame: NDArray[np.generic], **rules: object) -> NDArray[np.generic]:
    """Return the pixels that are written for *frame*, given read-only as a slot's input is."""
    lane = ImageRules(**{"color": "grey", "max_pixels": 10_000, **rules})
    out = np.zeros(30_000, np.uint8)
    frame = frame.copy()
    frame.flags.writeable = False
    return lane.target(raw_pixels(frame, out, lane), out)


def refusal(frame: NDArray[np.generic], **rules: object) -> RequestError:
    """Return the error with which *frame* is refused."""
    with pytest.raises(RequestError) as caught:
        made(frame, **rules)
    return caught.value


def test_the_names_in_the_config_are_those_that_can_be_read() -> None:
    """And those that say more than 8 bits are those that have more."""
    assert set(NAMES) == {"auto", *PIXEL_FORMATS}
    assert set(DEEP_PIXEL_FORMATS) == {"auto", *(name for name, one in PIXEL_FORMATS.items() if one.bits > 8)}


def test_a_grey_frame_stays_or_is_repeated() -> None:
    """Mono8 is what a frame of two dimensions is by itself."""
    grey = COLORS[..., 0]

    assert np.array_equal(made(grey), grey)
    assert np.array_equal(made(grey, color="rgb"), np.repeat(grey[..., None], 3, axis=2))


def test_a_colour_frame_stays_or_becomes_its_luma() -> None:
    """RGB8 is what a frame of three dimensions is by itself."""
    assert np.array_equal(made(COLORS, color="rgb"), COLORS)
    assert np.array_equal(made(COLORS), luma(COLORS))


def test_bgr_is_turned_about() -> None:
    """As it comes from programs that keep blue first."""
    assert np.array_equal(made(COLORS[..., ::-1], color="rgb", pixel_format="BGR8"), COLORS)
    assert np.array_equal(made(COLORS[..., ::-1], pixel_format="BGR8"), luma(COLORS))


@pytest.mark.parametrize("name", PACKED)
def test_twelve_packed_bits_are_unpacked(name: str) -> None:
    """Two pixels in three bytes, each camera standard its own way; stored bytes."""
    frame = np.frombuffer(bytes.fromhex(PACKED[name]), np.uint8).reshape(1, 6)

    assert made(frame, pixel_format=name, depth=16).tolist() == [[0x123, 0xABC, 0xFFF, 0x001]]
    assert made(frame, pixel_format=name).tolist() == [[0x12, 0xAB, 0xFF, 0x00]]


@pytest.mark.parametrize(("name", "bits"), [("Mono10", 10), ("Mono12", 12), ("Mono16", 16)])
def test_deep_values_stay_or_keep_their_highest_eight_bits(name: str, bits: int) -> None:
    """With depth 16 and 8."""
    frame = (TWELVE_BITS << (bits - 12)) if bits >= 12 else TWELVE_BITS >> (12 - bits)

    assert np.array_equal(made(frame, pixel_format=name, depth=16), frame)
    assert np.array_equal(made(frame, pixel_format=name), frame >> (bits - 8))


def test_sixteen_bit_frames_need_no_name_where_the_lane_keeps_them() -> None:
    """There, auto is Mono16."""
    assert np.array_equal(made(TWELVE_BITS, depth=16), TWELVE_BITS)


def test_a_value_with_unused_bits_is_refused() -> None:
    """The frame is not what the lane says; squeezed to 8 bits it would wrap."""
    error = refusal(np.array([[4096]], np.uint16), pixel_format="Mono12")

    assert (error.code, error.got) == (Code.BAD_IMAGE, 4096)


@pytest.mark.parametrize(
    ("frame", "rules", "code"),
    [
        (np.zeros((4, 4), np.float32), {}, Code.BAD_DTYPE),
        (np.zeros((4, 4), np.uint16), {}, Code.BAD_DTYPE),
        (np.zeros((4, 4), np.uint8), {"pixel_format": "Mono16"}, Code.BAD_DTYPE),
        (np.zeros((4, 4), np.uint8), {"depth": 16}, Code.BAD_DTYPE),
        (np.zeros(4, np.uint8), {}, Code.BAD_SHAPE),
        (np.zeros((4, 4, 4), np.uint8), {}, Code.BAD_SHAPE),
        (np.zeros((4, 4, 3), np.uint8), {"pixel_format": "BayerRG8"}, Code.BAD_SHAPE),
        (np.zeros((4, 4), np.uint8), {"pixel_format": "RGB8"}, Code.BAD_SHAPE),
        (np.zeros((4, 4), np.uint8), {"pixel_format": "Mono12p"}, Code.BAD_SHAPE),
        (np.zeros((1, 4), np.uint8), {"pixel_format": "BayerRG8"}, Code.BAD_SHAPE),
        (np.zeros((0, 4), np.uint8), {}, Code.BAD_IMAGE),
        (np.zeros((0, 3), np.uint8), {"pixel_format": "Mono12p"}, Code.BAD_IMAGE),
        (np.zeros((1, 8193), np.uint8), {}, Code.TOO_LARGE),
        (np.zeros((101, 100), np.uint8), {}, Code.TOO_LARGE),
        (np.zeros((101, 150), np.uint8), {"pixel_format": "Mono12p"}, Code.TOO_LARGE),
    ],
)
def test_a_tensor_that_is_no_such_frame_is_refused(frame: NDArray[np.generic], rules: dict[str, object], code: Code) -> None:
    """By datatype, rank, channels, packing, empty sides, size."""
    assert refusal(frame, **rules).code is code
