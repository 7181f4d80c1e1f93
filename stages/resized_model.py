"""A model that takes pictures as they are: one kernel resizes and normalises a batch on the device, and writes the model's input.

So a quarter of the bytes go up and the CPU touches no pixel. Pictures of one batch have one size; other batches may have another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from schemas.plan import LinkPlan
from schemas.status import ConfigError, RequestError
from schemas.tensors import ITEM_BYTES, DType, TensorSpec

from .device import Array, Block, Bound, Call, Device, Model, RowShapes
from .links import Arrays, Link
from .resize import ResizeSpec

PIXELS = "pixels"
# What the kernel needs to know of a picture: its address, and three numbers of 32 bits.
_ADDRESS_BYTES, _DIMS_BYTES = 8, 12


class Kernel(Protocol):
    """The compiled kernel of one spec, see :class:`stages.gpu_kernel.ResizeKernel`."""

    def launch(self, *, sources_ptr: int, dims_ptr: int, out_ptr: int, rows: int) -> None: ...


class ResizedModel:
    """*inner* behind the kernel; see :class:`stages.device.Model`.

    Args:
        inner: takes one input, rows as *spec* makes them.
        kernel: queues one launch on the current stream.
        device: gives memory for the rows; all batches share them, because they run one after the other on one stream.
        max_rows, max_pixels: most rows of a batch, most pixels of a picture.

    Raises:
        ConfigError: the rows do not fit into the device's memory.
    """

    def __init__(self, inner: Model, spec: ResizeSpec, kernel: Kernel, device: Device, *, max_rows: int, max_pixels: int) -> None:
        tail = () if spec.channels == 1 else (spec.channels,)
        self.name = inner.name
        self.inputs: tuple[TensorSpec, ...] = (TensorSpec(PIXELS, DType.UINT8, (-1, -1, -1, *tail)),)
        self.outputs, self.sized = inner.outputs, inner.sized
        # The largest picture, so that warming up takes all the memory that will ever be needed.
        height = math.isqrt(max_pixels)
        self.example: RowShapes | None = ((height, max_pixels // height, *tail),)
        self._inner, self._spec, self._kernel, self._device = inner, spec, kernel, device
        self._row_bytes = math.prod(spec.shape) * ITEM_BYTES[spec.dtype]
        try:
            self._rows = device.block(max_rows * self._row_bytes)
        except MemoryError as error:
            cure = "lower max_batch_size, or raise gpu.pool_bytes"
            raise ConfigError(f"{inner.name}: {max_rows} resized rows do not fit into the device's memory: {cure}") from error

    def bind(self, inputs: Sequence[Bound], outputs: Sequence[Bound]) -> Call:
        """Return kernel and model bound to these buffers; where each picture lies is queued among the uploads, once."""
        (pixels,) = inputs
        count = pixels.shape[0]
        table = self._device.block(count * (_ADDRESS_BYTES + _DIMS_BYTES))
        step = pixels.nbytes // count
        addresses = table.host[: count * _ADDRESS_BYTES].view(np.uint64)
        addresses[:] = pixels.block.address + step * np.arange(count, dtype=np.uint64)
        dims = table.host[count * _ADDRESS_BYTES :].view(np.int32).reshape(count, 3)
        dims[:] = (*pixels.shape[1:3], step // pixels.shape[1])
        self._device.upload(table, len(table.host))
        shape = (count, *self._spec.shape)
        name, dtype = self._inner.inputs[0].name, self._spec.dtype
        rows = Bound(name, dtype, shape, self._rows, count * self._row_bytes)
        return _ResizedCall(self._kernel, table, rows, self._inner.bind([rows], outputs))


class _ResizedCall:
    """The kernel and then the model, queued on one stream."""

    def __init__(self, kernel: Kernel, table: Block, rows: Bound, call: Call) -> None:
        self.outputs = call.outputs
        self.allocated = call.allocated
        self._kernel, self._table, self._rows, self._call = kernel, table, rows, call

    def run(self) -> None:
        count, table = self._rows.shape[0], self._table.address
        dims = table + count * _ADDRESS_BYTES
        self._kernel.launch(sources_ptr=table, dims_ptr=dims, out_ptr=self._rows.block.address, rows=count)
        self._call.run()


class PixelRows:
    """A link of decoded pictures, seen as rows of a batch: what the resized model reads.

    Decoding has made their sides at most 8192, so the kernel takes each.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self.plan: LinkPlan = link.plan

    def read(self, slot: int) -> Arrays:
        """Return the slot's picture as a batch of one."""
        (pixels,) = self._link.read(slot).values()
        return {PIXELS: pixels[None]}

    def rows(self, name: str, slots: Sequence[int]) -> list[Array]:
        return self._link.rows(name, slots)

    def gather(self, name: str, slots: Sequence[int], out: Array) -> None:
        for row, picture in zip(out, self._link.rows(name, slots), strict=True):
            row[...] = picture

    def buffers(self, slot: int) -> Arrays:
        return self._link.buffers(slot)

    def commit(self, slot: int, shapes: Mapping[str, tuple[int, ...]], *, strided: bool = False) -> None:
        self._link.commit(slot, shapes, strided=strided)

    def scatter(self, slots: Sequence[int], rows: Sequence[int], outputs: Mapping[str, Array]) -> list[RequestError | None]:
        return self._link.scatter(slots, rows, outputs)
