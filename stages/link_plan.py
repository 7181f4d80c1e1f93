"""The plan of one link: where its tensors lie in a slot's row. Pure arithmetic."""

from __future__ import annotations

from schemas.config import OutputConfig
from schemas.plan import ROW_ALIGN_BYTES, LinkPlan, LinkTensor, align
from schemas.tensors import ITEM_BYTES, DType, TensorSpec, element_count


def tensor_bytes(dtype: DType, shape: tuple[int, ...]) -> int:
    """Return the bytes of a tensor of fixed-size elements."""
    return ITEM_BYTES[dtype] * element_count(shape)


def open_link(name: str, specs: tuple[TensorSpec, ...], limit: int) -> LinkPlan:
    """Return a link whose tensors lie one behind the other as they come; *limit* bounds their sum in bytes."""
    tensors = tuple(LinkTensor(s.name, s.dtype, s.shape, (), limit, 0) for s in specs)
    return LinkPlan(name, tensors, limit, shared=True, static=False)


def fixed_link(name: str, rows: list[tuple[str, DType, tuple[int, ...], tuple[int, ...]]], *, static: bool) -> LinkPlan:
    """Return a link with a place for each tensor's largest shape; rows are (name, dtype, shape, largest shape)."""
    tensors: list[LinkTensor] = []
    at = 0
    for tensor, dtype, shape, largest in rows:
        size = tensor_bytes(dtype, largest)
        tensors.append(LinkTensor(tensor, dtype, shape, largest, size, at))
        at = align(at + size, ROW_ALIGN_BYTES)
    return LinkPlan(name, tuple(tensors), at, shared=True, static=static)


def declared_link(name: str, outputs: tuple[OutputConfig, ...]) -> LinkPlan:
    """Return a link that a user's function writes, as its config declares it."""
    tensors: list[LinkTensor] = []
    at = 0
    for out in outputs:
        largest = out.max_shape or out.shape
        size = out.max_bytes if out.dtype == DType.BYTES else tensor_bytes(out.dtype, largest)
        tensors.append(LinkTensor(out.name, out.dtype, out.shape, largest, size, at))
        at = align(at + size, ROW_ALIGN_BYTES)
    static = all(-1 not in out.shape and out.dtype != DType.BYTES for out in outputs)
    return LinkPlan(name, tuple(tensors), at, shared=True, static=static)
