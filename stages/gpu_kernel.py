"""The preprocess kernel: its source, how to compile it, one launch. Device objects are handed in; nothing of CUDA is imported."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any, TypeAlias

import numpy as np

from schemas.tensors import DType

from .resize import ResizeSpec

# Threads of a block: 32 neighbours write 32 neighbouring values of a plane.
BLOCK = (32, 8, 1)
# What a grid may have in its third dimension, which is the rows.
MAX_ROWS = 65_535
# Turing is the oldest that today's onnxruntime has code for.
MIN_CAPABILITY = (7, 5)
# Each float operation rounded by itself. cupy adds the architecture; others need :func:`options`.
OPTIONS = ("--std=c++17", "--fmad=false", "--prec-div=true", "--ftz=false")

# What runs a kernel on the current stream: (grid, block, arguments).
Function: TypeAlias = Callable[[tuple[int, ...], tuple[int, ...], tuple[Any, ...]], object]


def source() -> str:
    """Return the CUDA source of the kernels."""
    return files("stages").joinpath("kernels/preprocess.cu").read_text(encoding="utf-8")


def options(major: int, minor: int) -> tuple[str, ...]:
    """Return NVRTC's options for machine code of a GPU of this compute capability.

    Raises:
        ValueError: a GPU older than Turing.
    """
    if (major, minor) < MIN_CAPABILITY:
        raise ValueError(f"expected compute capability {MIN_CAPABILITY[0]}.{MIN_CAPABILITY[1]} or later, got {major}.{minor}")
    return (*OPTIONS, f"--gpu-architecture=sm_{major}{minor}")


def entry_name(spec: ResizeSpec) -> str:
    """Return which kernel of the source makes rows of *spec*."""
    return f"resize_{'rgb' if spec.channels == 3 else 'grey'}_{'fp32' if spec.dtype is DType.FP32 else 'fp16'}"


class ResizeKernel:
    """One spec's kernel, ready to launch. Owned by the thread that owns the device.

    Args:
        function: the compiled :func:`entry_name` of *spec*, for example ``RawModule.get_function`` of cupy.
    """

    def __init__(self, spec: ResizeSpec, function: Function) -> None:
        self._function = function
        self._tiles = (-(-spec.width // BLOCK[0]), -(-spec.height // BLOCK[1]))
        mean, scale = (tuple(values) + (0.0,) * (3 - spec.channels) for values in (spec.mean, spec.scale))
        self._settings = (np.int32(spec.height), np.int32(spec.width), *(np.float32(value) for value in (*mean, *scale)))

    def launch(self, *, sources_ptr: int, dims_ptr: int, out_ptr: int, rows: int) -> None:
        """Queue one launch on the current stream.

        Args:
            sources_ptr: device address of *rows* u64 addresses that the device can read.
            dims_ptr: device address of (rows, 3) i32: height, width, bytes from line to line; height 0 is a padding row.
            out_ptr: device address of the (rows, channels, height, width) result.
        """
        assert 1 <= rows <= MAX_ROWS
        pointers = (np.uint64(sources_ptr), np.uint64(dims_ptr), np.uint64(out_ptr))
        self._function((*self._tiles, rows), BLOCK, (*pointers, *self._settings))
