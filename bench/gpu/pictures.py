"""Pictures and specs with which the kernel is checked, on the CPU and on a GPU."""

from __future__ import annotations

import numpy as np

from schemas.tensors import DType
from stages.resize import Pixels, ResizeSpec

SIZES = ((1, 1), (1, 700), (480, 640), (1080, 1920), (3000, 4096), (223, 225))
SPECS = (
    ResizeSpec(224, 224, 3, DType.FP32, (123.675, 116.28, 103.53), (1 / 58.395, 1 / 57.12, 1 / 57.375)),
    ResizeSpec(224, 224, 3, DType.FP16, (123.675, 116.28, 103.53), (1 / 58.395, 1 / 57.12, 1 / 57.375)),
    ResizeSpec(31, 640, 1, DType.FP32, (0.0,), (1 / 255,)),
    ResizeSpec(300, 500, 1, DType.FP16, (127.5,), (1 / 127.5,)),
)


def pictures_for(spec: ResizeSpec) -> list[Pixels | None]:
    """Return random pictures of all sizes, one whose lines lie apart, and a padding row."""
    numbers = np.random.default_rng(1)
    tail = (3,) if spec.channels == 3 else ()
    whole = [numbers.integers(0, 256, (*size, *tail), np.uint8) for size in SIZES]
    return [*whole, whole[2][17:317, 40:500], None]
