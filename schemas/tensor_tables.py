"""Tensors and wanted outputs as the encoder takes them: what templates are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from schemas.status import Place
from schemas.wire import MAX_INLINE_BYTES

if TYPE_CHECKING:
    from schemas.templates import RequestOptions, TensorForm


def requested_outputs(options: RequestOptions) -> list[dict[str, Any]]:
    """Return the table of each output that a request names."""
    tables: list[dict[str, Any]] = [{"name": name} for name in options.outputs]
    for table, lease in zip(tables, options.output_leases, strict=False):
        if lease is not None:
            table |= {"place": Place.LEASE, "lease": lease._asdict()}
    return tables


def tensor_tables(tensors: Sequence[TensorForm]) -> list[dict[str, Any]]:
    """Return the table of each tensor, with zeros where inline bytes will be; payload frames are counted in their order."""
    tables: list[dict[str, Any]] = []
    frame = 0
    for tensor in tensors:
        inline = bytes(min(tensor.nbytes, MAX_INLINE_BYTES)) if tensor.inline else None
        has_frame = not tensor.inline and tensor.lease is None
        tables.append(
            {
                "name": tensor.name,
                "dtype": tensor.dtype,
                "place": Place.INLINE if tensor.inline else Place.FRAME if has_frame else Place.LEASE,
                "shape": tensor.shape or None,
                "frame": frame if has_frame else 0,
                "nbytes": tensor.nbytes,
                "inline_data": inline,
                "content_type": tensor.content_type or None,
                "lease": None if tensor.lease is None else tensor.lease._asdict(),
            }
        )
        frame += has_frame
    return tables
