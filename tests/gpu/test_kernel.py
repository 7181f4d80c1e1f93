"""The kernel's own source, run on the CPU through a shim, against its numpy twin; and the twin against float64 arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.gpu.shim import KERNEL, Shim, compile_shim, has_compiler
from schemas.status import RequestError
from schemas.tensors import NUMPY_NAME, DType
from stages.resize import Pixels, ResizeSpec, check_picture, resize_rows

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_SCALE = (1 / 58.395, 1 / 57.12, 1 / 57.375)
# The promise: of the range of the result. The same bits are what is really asked for.
TOLERANCE = 1e-5
SIZES = [(1, 1), (1, 2), (2, 1), (3, 5), (7, 4096), (480, 640), (1080, 1920), (3000, 4096), (224, 224), (223, 225), (2048, 1)]
OUT_SIZES = [(1, 1), (224, 224), (31, 33), (640, 8), (300, 500)]


def rgb(height: int, width: int, dtype: DType = DType.FP32) -> ResizeSpec:
    """Return a spec of colour pictures with ImageNet's numbers."""
    return ResizeSpec(height, width, 3, dtype, IMAGENET_MEAN, IMAGENET_SCALE)


def grey(height: int, width: int, dtype: DType = DType.FP32) -> ResizeSpec:
    """Return a spec of grey pictures, 0 to 1."""
    return ResizeSpec(height, width, 1, dtype, (0.0,), (1 / 255,))


def noise(*shape: int) -> Pixels:
    """Return random pixels: every neighbour differs, so a wrong one shows."""
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, np.uint8)


def empty(spec: ResizeSpec, rows: int) -> NDArray[Any]:
    """Return room for rows, full of what no picture gives."""
    return np.full((rows, *spec.shape), -77, NUMPY_NAME[spec.dtype])


def both(shim: Shim, spec: ResizeSpec, pictures: list[Pixels | None]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the rows by the kernel's source and by the twin; behind them is room that neither may touch."""
    count = len(pictures)
    kernel, twin = empty(spec, 3 * count), empty(spec, 3 * count)
    shim.rows(spec, pictures, kernel[:count])
    resize_rows(spec, pictures, twin[:count])
    return kernel, twin


def in_float64(spec: ResizeSpec, picture: Pixels) -> NDArray[np.float64]:
    """Return one row by the textbook: positions (i + 0.5) * in / out - 0.5, clamped, mixed in float64."""
    pixels = picture.reshape(*picture.shape[:2], spec.channels).astype(np.float64)
    y = np.clip((np.arange(spec.height) + 0.5) * picture.shape[0] / spec.height - 0.5, 0, picture.shape[0] - 1)
    x = np.clip((np.arange(spec.width) + 0.5) * picture.shape[1] / spec.width - 0.5, 0, picture.shape[1] - 1)
    y0, x0 = np.floor(y).astype(int), np.floor(x).astype(int)
    y1, x1 = np.minimum(y0 + 1, picture.shape[0] - 1), np.minimum(x0 + 1, picture.shape[1] - 1)
    wy, wx = (y - y0)[:, None, None], (x - x0)[None, :, None]
    top = pixels[np.ix_(y0, x0)] * (1 - wx) + pixels[np.ix_(y0, x1)] * wx
    bottom = pixels[np.ix_(y1, x0)] * (1 - wx) + pixels[np.ix_(y1, x1)] * wx
    result: NDArray[np.float64] = ((top * (1 - wy) + bottom * wy - spec.mean) * spec.scale).transpose(2, 0, 1)
    return result


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("make", [rgb, grey])
def test_the_kernel_gives_the_bits_of_its_twin(shim: Shim, size: tuple[int, int], make: Any) -> None:
    """From one pixel to 12 million, up and down, in colour and grey."""
    for out_size in OUT_SIZES:
        spec = make(*out_size)
        kernel, twin = both(shim, spec, [noise(*size, 3) if make is rgb else noise(*size)])

        assert np.array_equal(kernel.view(np.uint32), twin.view(np.uint32)), (size, out_size)


@pytest.mark.parametrize("size", SIZES)
def test_the_twin_is_the_textbooks_formula(size: tuple[int, int]) -> None:
    """Within 1e-5 of the range: the positions are exact, so large pictures are as good as small ones."""
    for out_size in OUT_SIZES:
        spec, picture = rgb(*out_size), noise(*size, 3)
        row = empty(spec, 1)
        resize_rows(spec, [picture], row)
        reach = 255 * max(spec.scale)

        assert np.abs(row[0] - in_float64(spec, picture)).max() <= TOLERANCE * reach, (size, out_size)


def test_a_picture_of_its_own_size_is_only_normalised(shim: Shim) -> None:
    """No pixel is mixed with its neighbour."""
    spec, picture = grey(37, 53), noise(37, 53)
    kernel, _ = both(shim, spec, [picture])

    assert np.array_equal(kernel[0, 0], picture.astype(np.float32) * np.float32(1 / 255))


def test_lines_may_lie_apart(shim: Shim) -> None:
    """A view of a larger picture, whose lines have the pixels of others between them."""
    large = noise(300, 400, 3)
    view = large[10:110, 50:210]
    kernel, twin = both(shim, rgb(64, 64), [view])
    copied, _ = both(shim, rgb(64, 64), [view.copy()])

    assert np.array_equal(kernel, twin)
    assert np.array_equal(kernel, copied)


def test_a_batch_mixes_sizes_and_padding_rows(shim: Shim) -> None:
    """Padding rows are zeros, whatever was there; the others are what they are alone."""
    pictures: list[Pixels | None] = [noise(9, 9, 3), None, noise(480, 640, 3), noise(1, 700, 3), None]
    kernel, twin = both(shim, rgb(224, 224), pictures)
    alone, _ = both(shim, rgb(224, 224), [pictures[2]])

    assert np.array_equal(kernel, twin)
    assert not kernel[1].any()
    assert not kernel[4].any()
    assert np.array_equal(kernel[2], alone[0])


def test_lines_apart_may_run_backwards(shim: Shim) -> None:
    """A picture stored bottom up is a view with a negative pitch."""
    upside_down = noise(60, 80, 3)[::-1]
    kernel, twin = both(shim, rgb(32, 32), [upside_down])

    assert np.array_equal(kernel, twin)


@pytest.mark.parametrize("make", [rgb, grey])
def test_halves_are_rounded_as_numpy_rounds(shim: Shim, make: Any) -> None:
    """The same bits in FP16 too."""
    spec = make(120, 90, DType.FP16)
    kernel, twin = both(shim, spec, [noise(301, 407, 3) if make is rgb else noise(301, 407)])

    assert np.array_equal(kernel.view(np.uint16), twin.view(np.uint16))


def test_every_half_and_what_lies_between_is_rounded_right(shim: Shim) -> None:
    """All 65536 halves, the middles between them, and one step of float32 to each side."""
    assert rounds_right(shim)


def test_what_is_not_a_number_stays_so(shim: Shim) -> None:
    """Of either sign."""
    assert np.isnan(np.array([shim.half_bits(float("nan"))], np.uint16).view(np.float16)[0])


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ((10, 10), "channels"),
        ((10, 10, 4), "channels"),
        ((0, 10, 3), "height"),
        ((10, 0, 3), "width"),
        ((1 << 23, 10, 3), "height"),
    ],
)
def test_a_picture_that_the_kernel_cannot_take_is_refused(shape: tuple[int, ...], why: str) -> None:
    """Before anything is read of it; a long side would overflow the position."""
    with pytest.raises(RequestError, match=why if why != "channels" else "pixels"):
        check_picture(rgb(224, 224), shape)


def test_the_longest_side_that_is_taken_has_the_right_positions(shim: Shim) -> None:
    """Just below where 32 bits end: 4,793,489 x 224 < 2^30."""
    side = ((1 << 30) - 1) // 224
    line = noise(1, side)
    kernel, twin = both(shim, grey(2, 224), [line])

    assert np.array_equal(kernel, twin)


def test_the_right_kernel_passes_what_faulty_ones_fail(shim: Shim) -> None:
    """Else the test below would show nothing."""
    assert agrees(shim)


@pytest.mark.skipif(not has_compiler(), reason="no g++")
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(2 * at + 1) * in_size - out_size", "2 * at * in_size"),
        ("(top + (bottom - top) * v.weight - mean[c]) * scale[c]", "(top + (bottom - top) * h.weight - mean[c]) * scale[c]"),
        ("row * CHANNELS * plane", "row * 3 * plane"),
        ("v.second * pitch", "v.second * (long long)width * CHANNELS"),
        ("kept & 1u", "0u"),
        ("store(to + c * plane, 0.0f)", "(void)0"),
    ],
)
def test_a_fault_planted_in_the_kernel_is_found(tmp_path: Path, right: str, wrong: str) -> None:
    """The comparison is worth something only if a wrong kernel fails it."""
    text = KERNEL.read_text(encoding="utf-8")
    assert right in text
    (tmp_path / "wrong.cu").write_text(text.replace(right, wrong), encoding="utf-8")

    assert not agrees(Shim(compile_shim(tmp_path, tmp_path / "wrong.cu")))


def agrees(shim: Shim) -> bool:
    """Return whether a shim agrees with the twin on a batch that uses all the kernel can do."""
    colour: list[Pixels | None] = [noise(90, 120, 3)[5:70, 3:99], noise(40, 30, 3), None]
    plain: list[Pixels | None] = [noise(90, 120)[5:70, 3:99], noise(40, 30), None]
    for spec, pictures in ((rgb(50, 60), colour), (rgb(50, 60, DType.FP16), colour), (grey(50, 60), plain)):
        if not np.array_equal(*both(shim, spec, pictures)):
            return False
    return rounds_right(shim)


def rounds_right(shim: Shim) -> bool:
    """Return whether every half, the middle to the next one, and what lies beside the middle become the same half as in numpy."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    exact = np.sort(halves[np.isfinite(halves)].astype(np.float32))
    middles = ((exact[:-1].astype(np.float64) + exact[1:]) / 2).astype(np.float32)
    beside = [np.nextafter(middles, np.float32(sign * np.inf), dtype=np.float32) for sign in (1, -1)]
    extreme = np.array([np.inf, -np.inf, 65519.0, 65520.0, 1e30, -1e30, 1e-30], np.float32)
    values = np.concatenate([exact, middles, *beside, extreme])
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16).view(np.uint16)
    return [shim.half_bits(float(value)) for value in values] == expected.tolist()
