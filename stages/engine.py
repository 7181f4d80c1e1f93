"""One ONNX model on the CPU: a session, a batch buffer for each input, and runs of exactly the rows that are there.

Reads no slots and knows no hops (``inference.py`` gathers into the views given here). Buffers are bound by address once for each
batch shape, because binding costs more than a small model's run.
"""

from __future__ import annotations

import ctypes
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.status import Code, ConfigError, RequestError
from schemas.tensors import NUMPY_NAME, DType, TensorSpec, element_count
from stages.onnx_model import error_text, open_session, row_dim, tensor_spec

Array = NDArray[Any]
# Shape of one row (without the first dimension) of each input, in the order of OnnxEngine.inputs.
RowShapes = tuple[tuple[int, ...], ...]

# Pictures of any size make any number of batch shapes: the least recently used are forgotten.
MAX_BINDINGS = 256
# The first run of a shape allocates inside onnxruntime; the best of three is what a warm one costs.
_WARM_UP_RUNS = 3
# ONNX's own number (TensorProto.DataType) of the one datatype that numpy has no name for.
_ONNX_BFLOAT16 = 16


@dataclass(frozen=True, slots=True)
class _Binding:
    """What is bound for one batch shape; *outputs* are the preallocated ones, onnxruntime allocates the others."""

    io: Any
    views: dict[str, Array]
    outputs: dict[str, Array]


class OnnxEngine:
    """An ONNX model and its batch buffers. Owned by one thread; what it returns is valid until its next run.

    Args:
        path: the model file.
        threads: threads of one run; 1 runs in the caller's thread.
        spin: whether those threads spin while idle (108 % CPU at 7 % load, to save 0.1 ms).
        max_batch_size: most rows of a run.

    Raises:
        ConfigError: onnxruntime or the file is missing, the file is no model, or its inputs have no dimension for the rows.
    """

    def __init__(self, path: str | Path, *, threads: int = 1, spin: bool = False, max_batch_size: int) -> None:
        self._path = Path(path)
        self._max_batch_size = max_batch_size
        self._session = open_session(self._path, threads=threads, spin=spin)
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        row_dims = {row_dim(node, self._path, max_batch_size) for node in inputs} - {None}
        self.inputs: tuple[TensorSpec, ...] = tuple(tensor_spec(node, self._path) for node in inputs)
        self.outputs: tuple[TensorSpec, ...] = tuple(tensor_spec(node, self._path) for node in outputs)
        self._buffers = {spec.name: np.empty(0, np.uint8) for spec in self.inputs}
        # A free dimension with a name of its own may turn out as anything: onnxruntime allocates, which is always right.
        self._preallocated = {
            spec.name: np.empty((max_batch_size, *spec.shape[1:]), NUMPY_NAME[spec.dtype])
            for spec, node in zip(self.outputs, outputs, strict=True)
            if spec.shape and node.shape[0] in row_dims and -1 not in spec.shape[1:]
        }
        self._bindings: OrderedDict[tuple[int, RowShapes], _Binding] = OrderedDict()

    @property
    def row_shapes(self) -> RowShapes | None:
        """The only shapes a row can have; None when a dimension beside the rows is free."""
        shapes = tuple(spec.shape[1:] for spec in self.inputs)
        return None if any(-1 in shape for shape in shapes) else shapes

    def input_views(self, rows: int, shapes: RowShapes) -> Mapping[str, Array]:
        """Return for each input the (rows, ...) C-contiguous view of its batch buffer, to be filled before :meth:`run`."""
        return self._bound(rows, shapes).views

    def run(self, rows: int, shapes: RowShapes) -> Mapping[str, Array]:
        """Run the model on what :meth:`input_views` was filled with and return each output as (rows, ...).

        Raises:
            RequestError: MODEL_FAILED, with the model's message, or when an output has another number of rows.
        """
        binding = self._bound(rows, shapes)
        try:
            self._session.run_with_iobinding(binding.io)
        # onnxruntime's exception classes share no base but Exception.
        except Exception as error:
            raise RequestError(Code.MODEL_FAILED, message=error_text(error)) from error
        if len(binding.outputs) == len(self.outputs):
            return binding.outputs
        return self._collect(binding, rows)

    def warm_up(self, shapes: RowShapes | None = None) -> dict[int, int]:
        """Run batches of 1, 2, 4 ... max_batch_size rows of zeros and return the best time of each in nanoseconds.

        Args:
            shapes: example shapes where the model leaves them free; without them such a model is not run: {}.

        Raises:
            ConfigError: the model fails on zeros.
        """
        shapes = shapes or self.row_shapes
        if shapes is None:
            return {}
        sizes = [1 << power for power in range(self._max_batch_size.bit_length())]
        return {rows: self._best_ns(rows, shapes) for rows in sorted({*sizes, self._max_batch_size})}

    def _best_ns(self, rows: int, shapes: RowShapes) -> int:
        """Return the shortest of a few runs on zeros."""
        for view in self.input_views(rows, shapes).values():
            view.fill(0)
        times_ns = []
        for _ in range(_WARM_UP_RUNS):
            started_ns = time.monotonic_ns()
            try:
                self.run(rows, shapes)
            except RequestError as error:
                raise ConfigError(f"{self._path}: the model fails on {rows} rows of zeros ({error}); export it again") from error
            times_ns.append(time.monotonic_ns() - started_ns)
        return min(times_ns)

    def _bound(self, rows: int, shapes: RowShapes) -> _Binding:
        """Return the binding of this batch shape, made at its first use."""
        key = (rows, shapes)
        binding = self._bindings.get(key)
        if binding is not None:
            self._bindings.move_to_end(key)
            return binding
        self._reserve(rows, shapes)
        binding = self._bindings[key] = self._bind(rows, shapes)
        if len(self._bindings) > MAX_BINDINGS:
            self._bindings.popitem(last=False)
        return binding

    def _reserve(self, rows: int, shapes: RowShapes) -> None:
        """Grow the batch buffers to hold this batch; bindings to an old address are dropped with it."""
        for spec, shape in zip(self.inputs, shapes, strict=True):
            needed = rows * element_count(shape) * np.dtype(NUMPY_NAME[spec.dtype]).itemsize
            if self._buffers[spec.name].nbytes < needed:
                # Powers of two, so that ever larger pictures rebind a few times only; untouched pages cost nothing.
                self._buffers[spec.name] = np.empty(1 << (needed - 1).bit_length(), np.uint8)
                self._bindings.clear()

    def _bind(self, rows: int, shapes: RowShapes) -> _Binding:
        """Bind views of the batch buffers as inputs, and the outputs."""
        assert 1 <= rows <= self._max_batch_size
        io = self._session.io_binding()
        views: dict[str, Array] = {}
        for spec, shape in zip(self.inputs, shapes, strict=True):
            view: Array = np.ndarray((rows, *shape), NUMPY_NAME[spec.dtype], self._buffers[spec.name])
            views[spec.name] = view
            io.bind_input(spec.name, "cpu", 0, _element_type(spec.dtype), view.shape, view.ctypes.data)
        binding = _Binding(io, views, {name: array[:rows] for name, array in self._preallocated.items()})
        self._bind_outputs(binding)
        return binding

    def _bind_outputs(self, binding: _Binding) -> None:
        """Bind each output to its preallocated array, or leave its memory to onnxruntime."""
        for spec in self.outputs:
            array = binding.outputs.get(spec.name)
            if array is None:
                binding.io.bind_output(spec.name, "cpu")
            else:
                binding.io.bind_output(spec.name, "cpu", 0, _element_type(spec.dtype), array.shape, array.ctypes.data)

    def _collect(self, binding: _Binding, rows: int) -> dict[str, Array]:
        """Return all outputs of a run in which onnxruntime allocated some.

        They are bound anew: onnxruntime takes the arrays of one run as given for the next, and fails when their shape depends on
        the content.
        """
        values = binding.io.get_outputs()
        results = {spec.name: _as_array(value, spec.dtype) for spec, value in zip(self.outputs, values, strict=True)}
        binding.io.clear_binding_outputs()
        self._bind_outputs(binding)
        for name, array in results.items():
            if array.shape[:1] != (rows,):
                raise RequestError(Code.MODEL_FAILED, field=name, expected=f"{rows} rows", got=array.shape)
        return {**results, **binding.outputs}


def _as_array(value: Any, dtype: DType) -> Array:
    """Return an output that onnxruntime allocated. It has no numpy() for BF16, whose bits are copied here."""
    if dtype is not DType.BF16:
        array: Array = value.numpy()
        return array
    shape = tuple(value.shape())
    return np.frombuffer(ctypes.string_at(value.data_ptr(), 2 * element_count(shape)), np.uint16).reshape(shape)


def _element_type(dtype: DType) -> Any:
    """Return what onnxruntime's binding calls *dtype*."""
    return _ONNX_BFLOAT16 if dtype is DType.BF16 else np.dtype(NUMPY_NAME[dtype])
