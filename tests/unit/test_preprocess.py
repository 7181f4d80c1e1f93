"""Pixels become exactly the rows that the model was trained on."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from schemas.status import Code, RequestError
from stages.preprocess import BUILT_IN, standardize


def trained_with(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return pictures (count, height, width) standardised as in the surface model's training."""
    grey = pixels.astype(np.float32)
    grey -= grey.mean((-2, -1), keepdims=True)
    return grey / np.maximum(grey.std((-2, -1), keepdims=True), 8.0)


@pytest.mark.parametrize("size", [(128, 128), (1, 1), (7, 301), (480, 640)])
def test_standardize_gives_the_bits_of_the_training(size: tuple[int, int]) -> None:
    """Also when the training took many pictures at once."""
    pictures = np.random.default_rng(0).integers(0, 256, (3, *size), dtype=np.uint8)
    expected = trained_with(pictures)

    for picture, want in zip(pictures, expected, strict=True):
        row = np.empty((1, *size), np.float32)
        standardize(picture, row)
        assert row[0].tobytes() == want.tobytes()


def test_standardize_does_not_blow_up_the_noise_of_a_flat_picture() -> None:
    """The deviation counts as 8 at least."""
    picture = np.full((16, 16), 100, np.uint8)
    picture[::2] += 2
    row = np.empty((1, 16, 16), np.float32)

    standardize(picture, row)

    assert np.abs(row).max() == np.float32(0.125)


def test_standardize_leaves_its_pixels_as_they_are() -> None:
    """They may lie in another's region."""
    picture = np.arange(64, dtype=np.uint8).reshape(8, 8)
    picture.flags.writeable = False

    standardize(picture, np.empty((1, 8, 8), np.float32))

    assert picture[7, 7] == 63


def test_each_built_in_says_what_tensor_it_makes() -> None:
    """One row for a picture; standardize adds the channel dimension of a grey model."""
    assert BUILT_IN["standardize"].tensor_shape((24, 40)) == (1, 1, 24, 40)
    assert BUILT_IN["none"].tensor_shape((24, 40, 3)) == (1, 24, 40, 3)


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_each_built_in_fills_the_tensor_that_it_says(name: str) -> None:
    """Function, shape and datatype belong together."""
    step = BUILT_IN[name]
    picture = np.random.default_rng(0).integers(0, 256, (24, 40), dtype=np.uint8)
    kind = {"standardize": np.float32, "none": np.uint8}[name]
    tensor = np.full(step.tensor_shape(picture.shape), 77, kind)

    step.function(picture, tensor[0])

    assert len(np.unique(tensor)) == len(np.unique(picture))


def test_standardize_refuses_colour() -> None:
    """A grey model's lane decodes to grey."""
    with pytest.raises(RequestError) as caught:
        BUILT_IN["standardize"].tensor_shape((24, 40, 3))

    assert caught.value.code is Code.BAD_SHAPE
