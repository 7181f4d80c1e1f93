"""Open an ONNX model file: the session, its tensors as ours, and one-line errors for whoever configured it.

No batches, no buffers (``engine.py``). onnxruntime is imported here and nowhere else.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

from schemas.status import ConfigError, printable
from schemas.tensors import MAX_RANK, DType, TensorSpec

MAX_ERROR_CHARS = 200
# onnxruntime puts the place in its own sources before the reason; a reader has no use for it, and the cut would take the reason.
_SOURCE_PLACE = re.compile(r"\S*/onnxruntime/\S+\.(?:cc|h):\d+ (?:[^()]*\([^)]*\)|\S+)\s*")
# Fatal only: an error is raised as well, and stderr belongs to the JSON log.
_LOG_FATAL = 4

_DTYPES: dict[str, DType] = {
    "tensor(bool)": DType.BOOL, "tensor(uint8)": DType.UINT8, "tensor(uint16)": DType.UINT16, "tensor(uint32)": DType.UINT32,
    "tensor(uint64)": DType.UINT64, "tensor(int8)": DType.INT8, "tensor(int16)": DType.INT16, "tensor(int32)": DType.INT32,
    "tensor(int64)": DType.INT64, "tensor(float16)": DType.FP16, "tensor(float)": DType.FP32, "tensor(double)": DType.FP64,
    "tensor(bfloat16)": DType.BF16,
}  # fmt: skip


def error_text(error: Exception) -> str:
    """Return what onnxruntime says was wrong: one line, without the place in its sources, at most 200 characters."""
    return printable(_SOURCE_PLACE.sub("", " ".join(str(error).split())), MAX_ERROR_CHARS)


def open_session(path: Path, *, threads: int, spin: bool) -> Any:
    """Return an ``onnxruntime.InferenceSession`` on the CPU.

    Raises:
        ConfigError: onnxruntime is not installed, or the file is missing, unreadable or no model it can run.
    """
    onnxruntime = _import_onnxruntime()
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such model file; correct the lane's model")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _LOG_FATAL
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spin)))
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    # onnxruntime's exception classes share no base but Exception.
    except Exception as error:
        reason = error_text(error)
        raise ConfigError(f"{path}: onnxruntime cannot load it as an ONNX model ({reason}); export or copy it again") from error


def _import_onnxruntime() -> ModuleType:
    """Import onnxruntime, which only inference needs."""
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
