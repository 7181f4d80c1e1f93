"""The preprocess kernel on the CPU: the .cu file compiled as C++, callable like a compiled CUDA function."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.gpu_kernel import ResizeKernel, entry_name
from stages.resize import Pixels, ResizeSpec, describe_row

ROOT = Path(__file__).resolve().parents[2]
SHIM = ROOT / "tests" / "gpu" / "shim.cpp"
KERNEL = ROOT / "stages" / "kernels" / "preprocess.cu"
# As the kernel is compiled: no operations joined, so that the results are the same bits.
FLAGS = ("-std=c++17", "-O2", "-ffp-contract=off", "-fno-fast-math", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
COMPILE_S = 120


def has_compiler() -> bool:
    """Return whether the shim can be built here."""
    return shutil.which("g++") is not None


def compile_shim(directory: Path, source: Path = KERNEL) -> Path:
    """Return the path of the shared library built from *source*.

    Raises:
        RuntimeError: the compiler refuses it; with what it said.
    """
    library = directory / f"{source.stem}_shim.so"
    # Through a copy with a plain name, because a macro cannot carry a path with spaces through every shell.
    (directory / "kernel.cu").write_bytes(source.read_bytes())
    command = ["g++", *FLAGS, '-DSOURCE="kernel.cu"', f"-I{directory}", "-o", str(library), str(SHIM)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"g++ on {source.name} failed: {run.stderr[-2000:]}")
    return library


class Shim:
    """The kernels of one library; :meth:`rows` runs one as the product would, through :class:`ResizeKernel`."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.run_half_bits.argtypes = [ctypes.c_float]
        self._library.run_half_bits.restype = ctypes.c_uint16

    def half_bits(self, value: float) -> int:
        """Return the bits of the FP16 number that the kernel makes of *value*."""
        return int(self._library.run_half_bits(value))

    def launch(self, name: str, grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        """Run kernel *name* over a whole grid, in this thread; the arguments are those of a launch on a device."""
        sources, dims, out, height, width, *factors = arguments
        sizes = [np.array(side, np.uint32) for side in (grid, block)]
        parts = [np.array(part, np.float32) for part in (factors[:3], factors[3:])]
        pointers = [ctypes.c_void_p(int(pointer)) for pointer in (sources, dims, out)]
        function = getattr(self._library, f"run_{name}")
        function(*(s.ctypes.data_as(ctypes.c_void_p) for s in sizes), *pointers, int(height), int(width),
                 *(p.ctypes.data_as(ctypes.c_void_p) for p in parts))  # fmt: skip

    def rows(self, spec: ResizeSpec, pictures: list[Pixels | None], out: NDArray[Any]) -> None:
        """Write *pictures* to *out* as the numpy twin does; *out* is C-contiguous."""
        described = [describe_row(picture) for picture in pictures]
        sources = np.array([row[0] for row in described], np.uint64)
        dims = np.array([row[1:] for row in described], np.int32)
        kernel = ResizeKernel(spec, lambda grid, block, arguments: self.launch(entry_name(spec), grid, block, arguments))
        kernel.launch(sources_ptr=sources.ctypes.data, dims_ptr=dims.ctypes.data, out_ptr=out.ctypes.data, rows=len(pictures))
