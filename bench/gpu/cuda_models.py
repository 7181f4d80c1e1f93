"""Models of cupy operations, so that tier A can run the whole engine without onnxruntime; see ``stages.device.Model``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.gpu.cuda import device_view
from bench.order_stress import SumModel
from schemas.tensors import NUMPY_NAME, DType, TensorSpec
from stages.device import Array, Bound, Call


class CudaCall:
    """A function over views of a flight's device memory, queued on the stream that is current; see ``stages.device.Call``."""

    def __init__(self, outputs: Sequence[Bound], function: Any, arrays: Sequence[Any]) -> None:
        self.outputs = outputs
        self._function = function
        self._arrays = arrays

    def run(self) -> None:
        self._function(*self._arrays)

    def allocated(self) -> Mapping[str, Array]:
        return {}


def views(cupy: Any, bounds: Sequence[Bound]) -> list[Any]:
    """Return cupy arrays over the device's side of tensors."""
    return [device_view(cupy, bound.block.address, bound.shape, NUMPY_NAME[bound.dtype]) for bound in bounds]


class CudaSumModel(SumModel):
    """The stress test's model, whose every value depends on every row of the batch, on a GPU."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def bind(self, inputs: Sequence[Bound], outputs: Sequence[Bound]) -> Call:
        return CudaCall(outputs, self._answer, views(self._cupy, [*inputs, *outputs]))

    def _answer(self, x: Any, z: Any, y: Any) -> None:
        cupy = self._cupy
        mixed = x.sum(dtype=cupy.uint64) * cupy.uint64(7) + z.sum(dtype=cupy.uint64) * cupy.uint64(11)
        y[...] = x[:, : y.shape[1]] * cupy.uint32(3) + z[:, :1] + (mixed & cupy.uint64(0xFFFFFFFF)).astype(cupy.uint32)


class BusyModel:
    """A model that works on each float again and again: as long as the check wants, with as much to copy in as out."""

    name = "busy"
    example = None
    sized = frozenset({"y"})

    def __init__(self, cupy: Any, width: int, turns: int) -> None:
        self.inputs = (TensorSpec("x", DType.FP32, (-1, width)),)
        self.outputs = (TensorSpec("y", DType.FP32, (-1, width)),)
        self._cupy = cupy
        self._work = cupy.ElementwiseKernel(
            "float32 x, int32 turns", "float32 y", "float v = x; for (int i = 0; i < turns; ++i) v = v * 0.5f + x; y = v;", "busy"
        )
        self._turns = turns

    def bind(self, inputs: Sequence[Bound], outputs: Sequence[Bound]) -> Call:
        return CudaCall(outputs, lambda x, y: self._work(x, self._turns, y), views(self._cupy, [*inputs, *outputs]))
