"""One set of buffers with all that is bound to them: what a batch is gathered into, run on, and read from.

A flight carries one batch at a time. Its buffers are its own, so two flights never wait for each other's memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from schemas.status import Code, RequestError
from schemas.tensors import NUMPY_NAME, TensorSpec

from .device import Array, Block, Bound, Call, Device, Model, RowShapes
from .link_plan import tensor_bytes

# Pictures of any size make any number of batch shapes: the least recently used are forgotten.
MAX_BINDINGS = 256


@dataclass(frozen=True, slots=True)
class Binding:
    """The model bound for one batch shape.

    *bound* are its inputs by name; *inputs* and *outputs* are host views with the bucket's rows; *read* and *written* are the
    inputs and outputs whose device side is apart from the host's, so that they must be copied.
    """

    call: Call
    bound: Mapping[str, Bound]
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    read: tuple[Bound, ...]
    written: tuple[Bound, ...]


class Flight:
    """Buffers of one batch on its way through a device. Owned by the engine.

    Attributes:
        rows, bucket: rows of the present batch, and with how many the model runs.
        inputs: for each input the (rows, ...) C-contiguous view to gather into.
        direct: inputs that were uploaded from where they lay.
        uploaded, computed, landed: marks behind the three parts of its way.
    """

    def __init__(self, model: Model, device: Device, max_batch_size: int) -> None:
        self._model, self._device = model, device
        self.uploaded, self.computed, self.landed = (device.new_mark() for _ in range(3))
        # Fixed shapes get all they will ever need; free ones grow with what comes.
        self._blocks: dict[str, Block] = {spec.name: device.block(_fixed_bytes(spec, max_batch_size)) for spec in model.inputs}
        self._output_blocks = {
            spec.name: device.block(_fixed_bytes(spec, max_batch_size)) for spec in model.outputs if spec.name in model.sized
        }
        self._bindings: OrderedDict[tuple[int, RowShapes], Binding] = OrderedDict()
        self.rows = self.bucket = 0
        self.direct: set[str] = set()
        self.inputs: dict[str, Array] = {}
        self.binding: Binding

    @property
    def blocks(self) -> list[Block]:
        """All memory of this flight."""
        return [*self._blocks.values(), *self._output_blocks.values()]

    def prepare(self, rows: int, bucket: int, shapes: RowShapes) -> None:
        """Make ready for a batch of *rows* that runs as *bucket* rows.

        Raises:
            MemoryError: it is larger than any before, and there is no room.
        """
        self.binding = self._bound(bucket, shapes)
        self.rows, self.bucket = rows, bucket
        self.direct.clear()
        whole = self.binding.inputs
        self.inputs = whole if rows == bucket else {name: view[:rows] for name, view in whole.items()}

    def outputs(self) -> Mapping[str, Array]:
        """Return each output as (rows, ...), valid until the flight is released; it must have landed.

        Raises:
            RequestError: MODEL_FAILED when an output does not have one row for each row.
        """
        outputs = self.binding.outputs
        if len(outputs) < len(self._model.outputs):
            outputs = self._with_allocated(outputs)
        return outputs if self.rows == self.bucket else {name: array[: self.rows] for name, array in outputs.items()}

    def _with_allocated(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        allocated = self.binding.call.allocated()
        for name, array in allocated.items():
            if array.shape[:1] != (self.bucket,):
                raise RequestError(Code.MODEL_FAILED, field=name, expected=f"{self.bucket} rows", got=array.shape)
        return {**allocated, **outputs}

    def _bound(self, bucket: int, shapes: RowShapes) -> Binding:
        """Return the binding of this batch shape, made at its first use."""
        key = (bucket, shapes)
        binding = self._bindings.get(key)
        if binding is not None:
            self._bindings.move_to_end(key)
            return binding
        self._reserve(bucket, shapes)
        binding = self._bindings[key] = self._bind(bucket, shapes)
        if len(self._bindings) > MAX_BINDINGS:
            self._bindings.popitem(last=False)
        return binding

    def _reserve(self, bucket: int, shapes: RowShapes) -> None:
        """Grow the input buffers to hold this batch; bindings to an old address are dropped with it."""
        for spec, shape in zip(self._model.inputs, shapes, strict=True):
            needed = tensor_bytes(spec.dtype, (bucket, *shape))
            if len(self._blocks[spec.name].host) < needed:
                self._bindings.clear()
                # The old block goes first, so that the device need not have room for both; the last batch's binding has it too.
                self.__dict__.pop("binding", None)
                self.inputs = {}
                del self._blocks[spec.name]
                self._blocks[spec.name] = self._device.block(0)
                # Powers of two, so that ever larger pictures rebind a few times only.
                self._blocks[spec.name] = self._device.block(1 << (needed - 1).bit_length())

    def _bind(self, bucket: int, shapes: RowShapes) -> Binding:
        """Bind the model to the front of the buffers."""
        inputs = [
            _bound(spec, (bucket, *shape), self._blocks[spec.name])
            for spec, shape in zip(self._model.inputs, shapes, strict=True)
        ]
        outputs = tuple(
            _bound(spec, (bucket, *spec.shape[1:]), self._output_blocks[spec.name])
            for spec in self._model.outputs
            if spec.name in self._output_blocks
        )
        call = self._model.bind(inputs, outputs)
        return Binding(call, {b.name: b for b in inputs}, _views(inputs), _views(outputs), _apart(inputs), _apart(outputs))


def _fixed_bytes(spec: TensorSpec, rows: int) -> int:
    """Return the bytes of so many rows, 0 when their size is not known."""
    return 0 if -1 in spec.shape[1:] else tensor_bytes(spec.dtype, (rows, *spec.shape[1:]))


def _bound(spec: TensorSpec, shape: tuple[int, ...], block: Block) -> Bound:
    return Bound(spec.name, spec.dtype, shape, block, tensor_bytes(spec.dtype, shape))


def _apart(tensors: Sequence[Bound]) -> tuple[Bound, ...]:
    """Return those whose two sides are not the same bytes."""
    return tuple(bound for bound in tensors if bound.block.address != bound.block.host.ctypes.data)


def _views(tensors: Sequence[Bound]) -> dict[str, Array]:
    """Return the host side of each tensor as an array."""
    return {t.name: np.ndarray(t.shape, NUMPY_NAME[t.dtype], t.block.host) for t in tensors}
