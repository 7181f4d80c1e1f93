"""The verdict on a part: its score, its boxes, and the demo's own models and pictures run without the pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from schemas.status import Code, RequestError
from schemas.tensors import unpack_bytes
from stages.demo.reference import DEMO_DIR, reference_parts, reference_ticks
from stages.demo.surface import OK_CLASS, find_boxes, label, verdict

PARTS = sorted((DEMO_DIR / "parts").glob("*.png"))
SCRATCH, PIT, STAIN = 1, 2, 3


def cells(picture: str) -> NDArray[np.intp]:
    """Return the classes drawn as lines of digits, a dot for ok."""
    return np.array([[int(cell.replace(".", "0")) for cell in line] for line in picture.split()])


def probabilities(classes: NDArray[np.intp], sure: float = 0.75) -> NDArray[np.float32]:
    """Return prob (1, 4, rows, columns) that gives each cell's class *sure*, and the rest to the others."""
    prob = np.full((1, 4, *classes.shape), (1 - sure) / 3, np.float32)
    np.put_along_axis(prob[0], classes[None], np.float32(sure), axis=0)
    return prob


def judge(prob: NDArray[np.float32], most: int = 32) -> tuple[bytes, float, NDArray[np.float32]]:
    """Return the verdict's outputs, from views larger than needed as a slot's are."""
    outputs = {"verdict": np.full(64, 7, np.uint8), "score": np.zeros(1, np.float32), "boxes": np.zeros((most, 6), np.float32)}
    shapes = verdict({"prob": prob}, outputs, None)
    (word,), _ = unpack_bytes(outputs["verdict"].tobytes(), shapes["verdict"][0])
    return word, float(outputs["score"][0]), outputs["boxes"][: shapes["boxes"][0]]


def flood_fill(classes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the labels by walking from each cell to its neighbours: the plain way."""
    labels = np.full(classes.shape, -1)
    for start, kind in np.ndenumerate(classes):
        if labels[start] >= 0:
            continue
        mark, waiting = np.ravel_multi_index(start, classes.shape), [start]
        while waiting:
            row, column = waiting.pop()
            if not (0 <= row < classes.shape[0] and 0 <= column < classes.shape[1]):
                continue
            if labels[row, column] >= 0 or classes[row, column] != kind:
                continue
            labels[row, column] = mark
            if kind != OK_CLASS:
                waiting += [(row + down, column + right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    return labels


@settings(max_examples=200, deadline=None)
@given(classes=arrays(np.intp, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=st.integers(0, 2)))
def test_cells_are_grouped_as_by_a_flood_fill(classes: NDArray[np.intp]) -> None:
    """Sides and corners connect, other classes do not; cells that are ok stay alone."""
    assert np.array_equal(label(classes), flood_fill(classes))


def test_a_spiral_is_one_group() -> None:
    """However long the way around."""
    spiral = cells("1111111 ......1 11111.1 1...1.1 1.111.1 1.....1 1111111")

    assert np.unique(label(spiral)[spiral == SCRATCH]).tolist() == [0]


def test_noise_over_a_large_picture_is_grouped_too() -> None:
    """Many small groups and few huge ones."""
    classes = np.random.default_rng(0).integers(0, 3, (60, 90))

    assert np.array_equal(label(classes), flood_fill(classes))


def test_a_box_spans_its_cells_in_pixels() -> None:
    """x0, y0, x1, y1 with the last two exclusive; class; mean of 1 - prob[ok]."""
    classes = cells("..... ..22. ...2. .....")

    boxes = find_boxes(classes, np.where(classes == PIT, 0.75, 0.25).astype(np.float32))

    assert boxes.tolist() == [[8, 4, 16, 12, PIT, 0.75]]


def test_touching_defects_of_two_classes_are_two_boxes() -> None:
    """The surest first."""
    classes = cells("1133 1133")
    defect = np.where(classes == STAIN, 0.9, 0.6).astype(np.float32)

    assert find_boxes(classes, defect)[:, 4].tolist() == [STAIN, SCRATCH]


def test_a_single_cell_is_no_box() -> None:
    """Two that touch at a corner are."""
    boxes = find_boxes(cells("1.... ...2. ..2.."), np.ones((3, 5), np.float32))

    assert boxes[:, :5].tolist() == [[8, 4, 16, 12, PIT]]


def test_a_clean_part_is_ok_without_boxes() -> None:
    """Its score is the four worst cells all the same."""
    word, score, boxes = judge(probabilities(np.zeros((4, 4), int)))

    assert (word, score, len(boxes)) == (b"OK", 0.25, 0)


def test_four_bad_cells_make_a_part_ng() -> None:
    """They need not touch."""
    word, score, _ = judge(probabilities(cells("1..1 .... .... 2..3")))

    assert word == b"NG"
    assert score == pytest.approx(1 - 0.25 / 3)


def test_one_bad_cell_does_not_make_a_part_ng() -> None:
    """The mean of the four worst is below one half."""
    assert judge(probabilities(cells("1... .... .... ....")))[0] == b"OK"


def test_of_too_many_boxes_the_surest_are_kept() -> None:
    """The output has room for so many."""
    prob = probabilities(cells("11.11 ..... 22.33"))
    prob[0, OK_CLASS, 2, 3:] = 0.0

    assert judge(prob, most=1)[2][:, 4].tolist() == [STAIN]


def test_a_part_does_not_pass_on_probabilities_that_are_none() -> None:
    """NaN is above no threshold; it must not be OK for that."""
    prob = probabilities(np.zeros((4, 4), int))
    prob[0, OK_CLASS, 1, 1] = np.nan

    with pytest.raises(RequestError) as caught:
        judge(prob)

    assert caught.value.code is Code.MODEL_FAILED


def test_the_bare_model_judges_23_of_the_24_parts_rightly() -> None:
    """The demo's pictures and labels belong to its model."""
    labels = json.loads((DEMO_DIR / "parts" / "labels.json").read_text(encoding="utf-8"))

    verdicts = {path.name: word for path, (word, _, _) in zip(PARTS, reference_parts(PARTS), strict=True)}

    assert verdicts.keys() == labels.keys()
    assert sum((verdicts[name] == "OK") == part["ok"] for name, part in labels.items()) == 23


def test_the_market_model_gives_the_outputs_stored_beside_its_features() -> None:
    """Within the rounding of another machine's arithmetic."""
    stored = np.load(DEMO_DIR / "trading_test.npz")

    outputs = reference_ticks(stored["features"][:100])

    assert outputs.keys() == {"log_vol", "p_up"}
    for name, array in outputs.items():
        assert array.shape == (100, 1)
        assert np.allclose(array, stored[f"{name}_onnx"][:100], atol=1e-5)


def test_every_file_of_the_demo_has_a_line_in_its_licences() -> None:
    """Nothing of unknown origin is shipped."""
    licences = (DEMO_DIR / "LICENSES.md").read_text(encoding="utf-8")
    assets = [path for path in DEMO_DIR.iterdir() if path.suffix in (".onnx", ".npz", ".json", ".png")]

    assert all(path.name in licences for path in assets)
    assert len(PARTS) == 24
    assert {path.name for path in Path(DEMO_DIR / "parts").iterdir()} == {path.name for path in PARTS} | {"labels.json"}
