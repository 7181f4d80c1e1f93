"""The encoder: writes any table of ``tables.py`` from a mapping, with the ordinary FlatBuffers builder.

For templates and rare messages: it takes about 100 us, so what is sent per request is patched into a template (``templates.py``).
Tests read its output with the generated accessors, which know nothing of ``tables.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
from flatbuffers import number_types

from schemas.status import Code, RequestError
from schemas.tables import BODIES, MESSAGE, BodyTag, Field, Shape, Table
from schemas.wire import IDENTIFIER, MAX_HEADER_BYTES, ROUTE, Route

_FLAGS: dict[str, Any] = {
    "?": number_types.BoolFlags,
    "B": number_types.Uint8Flags,
    "H": number_types.Uint16Flags,
    "I": number_types.Uint32Flags,
    "Q": number_types.Uint64Flags,
    "q": number_types.Int64Flags,
    "d": number_types.Float64Flags,
}
# What the schema forces for inline tensors, so that a reader may look at them as any datatype where they lie.
_INLINE_ALIGN = 16


def encode(route: Route, tag: BodyTag, body: Mapping[str, Any]) -> bytes:
    """Return the finished header of a message.

    Args:
        body: field name -> value; a field that is None or missing is absent, one that is 0 too unless it is free (then it is
            written, so that it can be patched). Tables are mappings, struct vectors and free bytes are bytes.

    Raises:
        RequestError: OUTPUT_TOO_LARGE when the header would be above MAX_HEADER_BYTES.
    """
    builder = flatbuffers.Builder(1024)
    values = {"route": ROUTE.pack(*route), "body_type": tag, "body": body if tag else None}
    builder.Finish(_table(builder, MESSAGE, values), file_identifier=IDENTIFIER)
    header = bytes(builder.Output())
    if len(header) > MAX_HEADER_BYTES:
        raise RequestError(Code.OUTPUT_TOO_LARGE, field="header", expected=f"at most {MAX_HEADER_BYTES} bytes", got=len(header))
    return header


def _table(builder: Any, table: Table, values: Mapping[str, Any]) -> int:
    present = [field for field in table.fields if values.get(field.name) is not None]
    assert len(present) == sum(value is not None for value in values.values()), f"{table.name} has not all of {list(values)}"
    children = {field.slot: _child(builder, field, values) for field in present if _is_offset(field)}
    builder.StartObject(len(table.fields))
    # Largest first, as the compiled languages do: no padding between the fields.
    for field in sorted(present, key=lambda field: -field.width):
        if field.slot in children:
            builder.PrependUOffsetTRelativeSlot(field.slot, children[field.slot], 0)
        elif field.shape is Shape.STRUCT:
            builder.Prep(field.align, field.width)
            _place(builder, values[field.name])
            builder.PrependStructSlot(field.slot, builder.Offset(), 0)
        else:
            builder.ForceDefaults(field.free)
            builder.PrependSlot(_FLAGS[field.code], field.slot, values[field.name], 0)
    end: int = builder.EndObject()
    return end


def _is_offset(field: Field) -> bool:
    return field.shape not in (Shape.SCALAR, Shape.STRUCT)


def _child(builder: Any, field: Field, values: Mapping[str, Any]) -> int:
    """Write what the offset of *field* will point to, and return its position."""
    value = values[field.name]
    offset: int
    if field.shape is Shape.UNION:
        offset = _table(builder, BODIES[values[field.name + "_type"] - 1], value)
    elif field.shape is Shape.TABLE:
        assert field.table is not None
        offset = _table(builder, field.table, value)
    elif field.terminated:
        offset = builder.CreateString(value)
    elif field.shape is Shape.NUMBERS:
        builder.StartVector(field.item_bytes, len(value), field.align)
        for number in reversed(value):
            builder.Prepend(_FLAGS[field.code], number)
        offset = builder.EndVector()
    elif field.shape is Shape.STRINGS:
        offset = _offsets(builder, [builder.CreateString(text) for text in reversed(value)])
    elif field.shape is Shape.TABLES:
        assert field.table is not None
        offset = _offsets(builder, [_table(builder, field.table, item) for item in reversed(value)])
    else:
        align = _INLINE_ALIGN if field.shape is Shape.BYTES else field.align
        builder.StartVector(field.item_bytes, len(value) // field.item_bytes, align)
        _place(builder, value)
        offset = builder.EndVector()
    return offset


def _offsets(builder: Any, backwards: Sequence[int]) -> int:
    """Write a vector of offsets, given last first: the builder writes from the end, so the first element then lies lowest."""
    builder.StartVector(4, len(backwards), 4)
    for offset in backwards:
        builder.PrependUOffsetTRelative(offset)
    end: int = builder.EndVector()
    return end


def _place(builder: Any, raw: bytes) -> None:
    """Write *raw*, for which StartVector or Prep has made room."""
    head = builder.head - len(raw)
    builder.Bytes[head : builder.head] = raw
    builder.head = head
