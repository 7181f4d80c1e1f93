"""NVRTC compiles the kernel for every GPU that it is for. Without its wheel this is skipped; no GPU and no driver is needed."""

from __future__ import annotations

import pytest

from bench.gpu.nvrtc import DISTRIBUTIONS, Nvrtc, find_library
from schemas.tensors import DType
from stages.gpu_kernel import entry_name, options, source
from stages.resize import ResizeSpec

# Turing, Ampere (server, desktop), Ada, Hopper, Blackwell (server, desktop).
CAPABILITIES = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    """Return the compiler of an installed wheel."""
    path = find_library()
    if path is None:
        pytest.skip(f"neither {' nor '.join(DISTRIBUTIONS)} is installed: pip install {DISTRIBUTIONS[0]}")
    return Nvrtc(path)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_kernel_compiles(nvrtc: Nvrtc, capability: tuple[int, int]) -> None:
    """To machine code, with every entry in it."""
    code = nvrtc.compile(source(), options(*capability))
    names = [
        entry_name(ResizeSpec(1, 1, channels, dtype, (0.0,) * channels, (1.0,) * channels))
        for channels in (1, 3)
        for dtype in (DType.FP32, DType.FP16)
    ]

    assert code.startswith(b"\x7fELF")
    assert all(name.encode() in code for name in names)


def test_a_planted_error_is_told_with_its_line(nvrtc: Nvrtc) -> None:
    """So a kernel that does not compile cannot pass."""
    lines = source().splitlines()
    lines[30] += " int never = undeclared_name;"

    with pytest.raises(ValueError, match=r"preprocess\.cu\(31\).*undeclared_name"):
        nvrtc.compile("\n".join(lines), options(8, 0))


def test_a_gpu_older_than_turing_is_refused() -> None:
    """onnxruntime has no code for it."""
    with pytest.raises(ValueError, match=r"7\.5 or later, got 7\.0"):
        options(7, 0)
