"""An ONNX model file as the engine's model: the session, its tensors as ours, and one-line errors for whoever configured it.

No batches, no buffers (``engine.py``, ``flight.py``). onnxruntime is imported here and nowhere else.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from schemas.status import Code, ConfigError, RequestError, printable
from schemas.tensors import MAX_RANK, NUMPY_NAME, DType, TensorSpec, element_count

from .device import Array, Bound, RowShapes

MAX_ERROR_CHARS = 200
# onnxruntime puts the place in its own sources before the reason; a reader has no use for it, and the cut would take the reason.
_SOURCE_PLACE = re.compile(r"\S*/onnxruntime/\S+\.(?:cc|h):\d+ (?:[^()]*\([^)]*\)|\S+)\s*")
# Fatal only: an error is raised as well, and stderr belongs to the JSON log.
_LOG_FATAL = 4
# ONNX's own number (TensorProto.DataType) of the one datatype that numpy has no name for.
_ONNX_BFLOAT16 = 16

_DTYPES: dict[str, DType] = {
    "tensor(bool)": DType.BOOL, "tensor(uint8)": DType.UINT8, "tensor(uint16)": DType.UINT16, "tensor(uint32)": DType.UINT32,
    "tensor(uint64)": DType.UINT64, "tensor(int8)": DType.INT8, "tensor(int16)": DType.INT16, "tensor(int32)": DType.INT32,
    "tensor(int64)": DType.INT64, "tensor(float16)": DType.FP16, "tensor(float)": DType.FP32, "tensor(double)": DType.FP64,
    "tensor(bfloat16)": DType.BF16,
}  # fmt: skip


def error_text(error: Exception) -> str:
    """Return what onnxruntime says was wrong: one line, without the place in its sources, at most 200 characters."""
    return printable(_SOURCE_PLACE.sub("", " ".join(str(error).split())), MAX_ERROR_CHARS)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session has its tensors, in onnxruntime's words: *device* "cpu" or "cuda", and its number.

    *run_options* are those of a run that writes to given memory alone. Outputs that onnxruntime allocates are on the host when a
    run without options returns.
    """

    device: str = "cpu"
    index: int = 0
    run_options: Any = None


class OnnxModel:
    """An ONNX model; see :class:`stages.device.Model`.

    Args:
        path: the model file, for messages.
        session: an ``onnxruntime.InferenceSession`` of it.
        max_batch_size: most rows of a run.
        place: where the session's tensors are.

    Raises:
        ConfigError: the model's inputs have no dimension for the rows, or it has tensors that are not supported.
    """

    def __init__(self, path: Path, session: Any, max_batch_size: int, place: Place | None = None) -> None:
        self.name = str(path)
        self.example: RowShapes | None = None
        self._session = session
        self._place = place or Place()
        inputs, outputs = session.get_inputs(), session.get_outputs()
        row_dims = {row_dim(node, path, max_batch_size) for node in inputs} - {None}
        self.inputs = tuple(tensor_spec(node, path) for node in inputs)
        self.outputs = tuple(tensor_spec(node, path) for node in outputs)
        # A free dimension with a name of its own may turn out as anything: onnxruntime allocates, which is always right.
        self.sized = frozenset(
            spec.name
            for spec, node in zip(self.outputs, outputs, strict=True)
            if spec.shape and node.shape[0] in row_dims and -1 not in spec.shape[1:]
        )
        if len(self.sized) < len(self.outputs):
            self._place = replace(self._place, run_options=None)

    def bind(self, inputs: Sequence[Bound], outputs: Sequence[Bound]) -> OnnxCall:
        """Return the session bound by address, once: binding costs more than a small model's run."""
        io, place = self._session.io_binding(), self._place
        for tensor in inputs:
            element = _element_type(tensor.dtype)
            io.bind_input(tensor.name, place.device, place.index, element, tensor.shape, tensor.block.address)
        return OnnxCall(self._session, io, self.outputs, outputs, place)


class OnnxCall:
    """A session bound to one flight's buffers; see :class:`stages.device.Call`."""

    def __init__(self, session: Any, io: Any, specs: Sequence[TensorSpec], outputs: Sequence[Bound], place: Place) -> None:
        self.outputs = outputs
        self._run = session.run_with_iobinding
        self._io = io
        self._specs = specs
        self._place = place
        self._bind_outputs()

    def run(self) -> None:
        try:
            self._run(self._io, self._place.run_options)
        # onnxruntime's exception classes share no base but Exception.
        except Exception as error:
            raise RequestError(Code.MODEL_FAILED, message=error_text(error)) from error

    def allocated(self) -> Mapping[str, Array]:
        """Return what onnxruntime allocated, and bind the outputs anew: it takes the arrays of one run as given for the next, and
        fails when their shape depends on the content."""
        given = {bound.name for bound in self.outputs}
        values = zip(self._specs, self._io.get_outputs(), strict=True)
        results = {spec.name: _as_array(value, spec.dtype) for spec, value in values if spec.name not in given}
        self._io.clear_binding_outputs()
        self._bind_outputs()
        return results

    def _bind_outputs(self) -> None:
        """Bind each output to its memory; those that have none are left on the host, and their memory to onnxruntime."""
        given = {bound.name: bound for bound in self.outputs}
        for spec in self._specs:
            tensor = given.get(spec.name)
            if tensor is None:
                self._io.bind_output(spec.name, "cpu")
            else:
                element, place = _element_type(tensor.dtype), self._place
                self._io.bind_output(spec.name, place.device, place.index, element, tensor.shape, tensor.block.address)


def read_model(path: Path, *, max_batch_size: int, threads: int = 1, spin: bool = False) -> OnnxModel:
    """Return the model in the file *path* on the CPU.

    Args:
        max_batch_size: most rows of a run.
        threads: threads of one run; 1 runs in the caller's thread.
        spin: whether those threads spin while idle (108 % CPU at 7 % load, to save 0.1 ms).

    Raises:
        ConfigError: onnxruntime or the file is missing, the file is no model, or its inputs have no dimension for the rows.
    """
    options = session_options(threads=threads, spin=spin)
    return OnnxModel(path, open_session(path, options, ["CPUExecutionProvider"]), max_batch_size)


def session_options(*, threads: int, spin: bool) -> Any:
    """Return onnxruntime's options of a session that leaves stderr alone."""
    options = import_onnxruntime().SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _LOG_FATAL
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spin)))
    return options


def open_session(path: Path, options: Any, providers: Sequence[Any]) -> Any:
    """Return an ``onnxruntime.InferenceSession``.

    Raises:
        ConfigError: onnxruntime is not installed, or the file is missing, unreadable or no model it can run.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such model file; correct the lane's model")
    try:
        return import_onnxruntime().InferenceSession(str(path), options, providers=providers)
    # onnxruntime's exception classes share no base but Exception.
    except Exception as error:
        reason = error_text(error)
        raise ConfigError(f"{path}: onnxruntime cannot load it as an ONNX model ({reason}); export or copy it again") from error


def import_onnxruntime() -> ModuleType:
    """Import onnxruntime, which only inference needs.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError(f"inference needs onnxruntime ({error}): pip install 'slotline[cpu]'") from error
    # Two packages write this directory; after one of them was removed, what is left imports as an empty module.
    if not hasattr(onnxruntime, "InferenceSession"):
        cure = "pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'slotline[cpu]'"
        raise ConfigError(f"the installed onnxruntime is not whole (no InferenceSession): {cure}")
    module: ModuleType = onnxruntime
    return module


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


def tensor_spec(node: Any, path: Path) -> TensorSpec:
    """Return a model's input or output as ours, -1 for each free dimension.

    Raises:
        ConfigError: a type that is no tensor of fixed-size elements, or too many dimensions.
    """
    dtype = _DTYPES.get(node.type)
    if dtype is None:
        raise ConfigError(f"{path}: {node.name} is a {node.type}, which is not supported; export the model with numeric tensors")
    if len(node.shape) > MAX_RANK:
        raise ConfigError(f"{path}: {node.name} has {len(node.shape)} dimensions, at most {MAX_RANK} are supported; reshape it")
    return TensorSpec(node.name, dtype, tuple(dim if isinstance(dim, int) else -1 for dim in node.shape))


def row_dim(node: Any, path: Path, max_batch_size: int) -> str | int | None:
    """Return an input's first dimension, which must be the rows: a name, None (free, unnamed), or 1 where batches are of one row.

    Raises:
        ConfigError: the first dimension cannot be the rows.
    """
    first = node.shape[0] if node.shape else 0
    if isinstance(first, int) and first != 1:
        rule = "the first dimension must be the rows, free or 1"
        raise ConfigError(f"{path}: input {node.name} has shape {node.shape}; {rule}: export the model so")
    if first == 1 and max_batch_size > 1:
        cure = "set max_batch_size = 1, or export the model with a free first dimension"
        raise ConfigError(f"{path}: input {node.name} has shape {node.shape}, one row at a time; {cure}")
    dim: str | int | None = first
    return dim
