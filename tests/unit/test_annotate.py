"""The annotated picture shows what it was given: every part, its frame, its boxes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageColor

from clients import annotate
from clients.annotate import Part, annotate_parts
from schemas.status import ConfigError

BOX = (8.0, 8.0, 24.0, 20.0, 2, 0.9)


def make_part(verdict: str = "OK", label: str = "", boxes: tuple[tuple[float, ...], ...] = ()) -> Part:
    """Return a part whose photo is a grey square of 32x32 pixels."""
    return Part("part.png", np.full((32, 32), 128, np.uint8), verdict, label, boxes)


def draw(path: Path, *parts: Part) -> NDArray[np.uint8]:
    """Return the picture of *parts* as pixels."""
    annotate_parts(parts, path / "parts.png")
    with Image.open(path / "parts.png") as image:
        assert image.format == "PNG"
        return np.asarray(image)


def count(picture: NDArray[np.uint8], color: str) -> int:
    """Return how many pixels of *picture* below the header have exactly this colour."""
    body = picture[annotate._MARGIN + annotate._HEADER_HEIGHT - 8 :]
    return int((body == ImageColor.getrgb(color)).all(axis=-1).sum())


def test_a_photo_is_enlarged_twice_without_blur(tmp_path: Path) -> None:
    """Its grey pixels are all there, four for each."""
    assert count(draw(tmp_path, make_part()), "#808080") == 64 * 64


def test_the_frame_says_the_verdict(tmp_path: Path) -> None:
    """Green or red."""
    ok, ng = draw(tmp_path, make_part("OK")), draw(tmp_path, make_part("NG"))

    assert (count(ok, annotate._OK_COLOR) > 0, count(ok, annotate._NG_COLOR)) == (True, 0)
    assert (count(ng, annotate._NG_COLOR) > 0, count(ng, annotate._OK_COLOR)) == (True, 0)


def test_a_verdict_that_differs_from_its_label_stands_out(tmp_path: Path) -> None:
    """One without a label does not."""
    assert count(draw(tmp_path, make_part("NG", "OK")), annotate._WRONG_COLOR) > 0
    assert count(draw(tmp_path, make_part("NG", "NG")), annotate._WRONG_COLOR) == 0
    assert count(draw(tmp_path, make_part("NG", "")), annotate._WRONG_COLOR) == 0


def test_a_box_is_drawn_in_the_colour_of_its_class(tmp_path: Path) -> None:
    """Only when there is one."""
    color = annotate._CLASS_COLORS[2]

    assert count(draw(tmp_path, make_part("NG", boxes=(BOX,))), color) > 100
    assert count(draw(tmp_path, make_part("NG")), color) == 0


def test_boxes_beyond_the_photo_stay_inside_it(tmp_path: Path) -> None:
    """The last cells of a picture whose sides are no multiple of four reach over its edge."""
    picture = draw(tmp_path, make_part("NG", boxes=((-8.0, 24.0, 60.0, 60.0, 2, 0.9),)))

    frame = annotate._MARGIN + annotate._FRAME
    assert count(picture[:, : frame - 1], annotate._CLASS_COLORS[2]) == 0


def test_more_parts_than_columns_make_more_rows(tmp_path: Path) -> None:
    """Every photo is there."""
    picture = draw(tmp_path, *[make_part()] * (annotate.COLUMNS + 1))

    assert count(picture, "#808080") == (annotate.COLUMNS + 1) * 64 * 64


def test_a_photo_may_be_a_file(tmp_path: Path) -> None:
    """In colour or grey."""
    path = tmp_path / "photo.png"
    Image.fromarray(np.full((32, 32, 3), 128, np.uint8)).save(path)

    assert count(draw(tmp_path, Part("photo.png", path, "OK", "OK")), "#808080") == 64 * 64


def test_a_missing_pillow_is_named_with_the_extra_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base installation has none."""
    monkeypatch.setitem(sys.modules, "PIL", None)

    with pytest.raises(ConfigError, match=r"pip install 'slotline\[cpu\]'"):
        annotate_parts([make_part()], tmp_path / "parts.png")
