"""One launch of the preprocess kernel: the grid and the arguments that a device gets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from schemas.tensors import DType
from stages.gpu_kernel import ResizeKernel, entry_name
from stages.resize import ResizeSpec


def launched(spec: ResizeSpec, rows: int) -> tuple[Any, ...]:
    """Return (grid, block, arguments) of one launch."""
    calls: list[tuple[Any, ...]] = []
    ResizeKernel(spec, lambda *call: calls.append(call)).launch(sources_ptr=1 << 40, dims_ptr=2, out_ptr=3, rows=rows)
    return calls[0]


def test_the_grid_covers_every_pixel_of_every_row() -> None:
    """The last block of each direction may stand over the edge."""
    grid, block, _ = launched(ResizeSpec(225, 224), rows=5)

    assert (grid, block) == ((7, 29, 5), (32, 8, 1))


def test_arguments_have_the_widths_of_the_kernels_parameters() -> None:
    """A Python int or float would be passed as 64 bits."""
    _, _, arguments = launched(ResizeSpec(10, 20, 3, DType.FP32, (1.0, 2.0, 3.0), (4.0, 5.0, 6.0)), rows=1)

    assert arguments == (1 << 40, 2, 3, 10, 20, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    assert [type(a) for a in arguments] == [np.uint64] * 3 + [np.int32] * 2 + [np.float32] * 6


def test_a_grey_spec_fills_the_factors_it_has_no_channels_for() -> None:
    """All kernels have the same parameters."""
    _, _, arguments = launched(ResizeSpec(10, 20, 1, DType.FP16, (7.0,), (8.0,)), rows=1)

    assert arguments[5:] == (7.0, 0.0, 0.0, 8.0, 0.0, 0.0)


@pytest.mark.parametrize(("channels", "dtype", "name"), [(3, DType.FP32, "resize_rgb_fp32"), (1, DType.FP16, "resize_grey_fp16")])
def test_each_spec_has_its_kernel(channels: int, dtype: DType, name: str) -> None:
    """By channels and datatype."""
    assert entry_name(ResizeSpec(1, 1, channels, dtype, (0.0,) * channels, (1.0,) * channels)) == name


@pytest.mark.parametrize(
    "wrong", [{"height": 0}, {"width": 40_000}, {"channels": 4}, {"dtype": DType.INT8}, {"mean": (0.0,)}, {"scale": (1.0,)}]
)
def test_a_spec_that_no_kernel_makes_is_refused(wrong: dict[str, Any]) -> None:
    """When it is made, not when it is launched."""
    with pytest.raises(ValueError, match="expected"):
        ResizeSpec(**{"height": 10, "width": 10, **wrong})
