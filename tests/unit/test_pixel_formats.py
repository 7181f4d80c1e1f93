"""The demosaic against the stated rule, written once more as a plain loop over pixels and neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.pixel_formats import PIXEL_FORMATS

PATTERNS = {"BayerRG8": "RGGB", "BayerGR8": "GRBG", "BayerGB8": "GBRG", "BayerBG8": "BGGR"}
BESIDE = [(0, -1), (0, 1)]
ABOVE = [(-1, 0), (1, 0)]
DIAGONAL = [(-1, -1), (-1, 1), (1, -1), (1, 1)]


def mirrored(index: int, size: int) -> int:
    """Return the index inside for one that is one outside."""
    return 1 if index < 0 else size - 2 if index >= size else index


def one_pixel(mosaic: NDArray[np.uint8], pattern: str, row: int, column: int) -> list[int]:
    """Return R, G, B of one pixel: its own colour, and of each other one the mean of the neighbours that have it."""

    def color_of(y: int, x: int) -> str:
        return pattern[2 * (y % 2) + x % 2]

    values = []
    for color in "RGB":
        if color_of(row, column) == color:
            values.append(int(mosaic[row, column]))
            continue
        for offsets in (BESIDE + ABOVE if color == "G" else BESIDE, ABOVE, DIAGONAL):
            places = [(row + down, column + right) for down, right in offsets]
            if all(color_of(y, x) == color for y, x in places):
                near = [int(mosaic[mirrored(y, mosaic.shape[0]), mirrored(x, mosaic.shape[1])]) for y, x in places]
                values.append((sum(near) + len(near) // 2) // len(near))
                break
    return values


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("size", [(2, 2), (2, 5), (5, 2), (6, 8), (7, 9)])
def test_a_mosaic_becomes_what_the_rule_says_pixel_by_pixel(name: str, size: tuple[int, int]) -> None:
    """For each pattern, and sides even and odd."""
    mosaic = np.random.default_rng(3).integers(0, 256, size).astype(np.uint8)
    expected = [[one_pixel(mosaic, PATTERNS[name], y, x) for x in range(size[1])] for y in range(size[0])]

    assert PIXEL_FORMATS[name].plain(mosaic).tolist() == expected


@pytest.mark.parametrize("name", PATTERNS)
def test_a_plain_colour_comes_back_everywhere(name: str) -> None:
    """Also at the edges."""
    color = {"R": 200, "G": 100, "B": 50}
    cell = np.array([color[letter] for letter in PATTERNS[name]], np.uint8).reshape(2, 2)

    rgb = PIXEL_FORMATS[name].plain(np.tile(cell, (4, 5)))

    assert (rgb == [200, 100, 50]).all()
