"""What ``check.cpp`` prints for a header, worked out from our verifier's values instead."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from schemas.tables import BODIES, MESSAGE, Field, Shape, Table
from schemas.verify import Values, verify
from schemas.wire import ROUTE, STAGE_TIME, TRACE_CONTEXT, Route, Trace

# Given headers, what check.cpp prints for each.
Checker = Callable[[list[bytes]], list[str]]

_STRUCTS = {"route": (ROUTE, Route._fields), "trace": (TRACE_CONTEXT, Trace._fields)}
_STAGE_TIME_FIELDS = ("queue_us", "run_us", "batch")


def fields_text(header: bytes) -> str:
    """Return all fields of *header* on one line; raises what ``verify`` raises."""
    return _table(header, MESSAGE, verify(header).values)


def _table(header: bytes, table: Table, values: Values) -> str:
    parts = []
    for field, value in zip(table.fields, values, strict=True):
        if field.shape is Shape.SCALAR:
            number = _scalar(header, field, value)
            parts.append(f"{field.name}={number} " if number else "")
        elif value is not None:
            parts.append(f"{field.name}={_value(header, field, value, values)}")
    return "{" + "".join(parts) + "} "


def _scalar(header: bytes, field: Field, value: int | float | None) -> int:
    if field.free:
        value = 0 if value is None else struct.unpack_from("<" + field.code, header, int(value))[0]
    return struct.unpack("<Q", struct.pack("<d", value))[0] if field.code == "d" else int(value or 0)


def _value(header: bytes, field: Field, value: Any, siblings: Values) -> str:
    if field.shape is Shape.STRUCT:
        layout, names = _STRUCTS[field.name]
        return _struct(names, layout.unpack_from(header, value))
    if field.shape is Shape.STRING:
        return _text(value.encode())
    if field.shape is Shape.BYTES:
        raw = header[value[0] : value[0] + value[1]]
        return _text(raw) if field.terminated else _vector(f"{byte} " for byte in raw)
    if field.shape is Shape.NUMBERS:
        return _vector(f"{number} " for number in value)
    if field.shape is Shape.STRUCTS:
        raw = header[value[0] : value[0] + value[1] * STAGE_TIME.size]
        return _vector(_struct(_STAGE_TIME_FIELDS, row) for row in STAGE_TIME.iter_unpack(raw))
    if field.shape is Shape.STRINGS:
        return _vector(_text(text.encode()) for text in value)
    if field.shape is Shape.TABLES:
        return _vector(_table(header, field.table, item) for item in value)
    if field.shape is Shape.UNION:
        return _table(header, BODIES[siblings[field.slot - 1] - 1], value)
    return _table(header, field.table, value)


def _struct(names: tuple[str, ...], numbers: tuple[int, ...]) -> str:
    return "{" + "".join(f"{name}={number} " for name, number in zip(names, numbers, strict=True) if number) + "} "


def _vector(items: Iterable[str]) -> str:
    return "[" + "".join(items) + "] "


def _text(raw: bytes) -> str:
    return f'"{raw.hex()}" '
