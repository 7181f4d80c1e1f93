"""The tables of ``infer.fbs`` as data: what the verifier walks and the encoder writes. A test compares them with the schema.

A field's slot is its id in the schema. *Free* fields are those whose content changes from message to message while the layout of
the header stays: they are read by position, never parsed, and the layout cache leaves them out of its key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from schemas.wire import MAX_LIST, MAX_STATS, MAX_TENSORS, ROUTE, STAGE_TIME, TRACE_CONTEXT


class Shape(IntEnum):
    """How a field is stored, and what the verifier returns for it.

    SCALAR: the number. STRUCT: its position. STRING: a str. BYTES: (position, length) of a string or byte vector.
    NUMBERS: a tuple. STRUCTS: (position, count). STRINGS, TABLES: a list. TABLE: a list of field values.
    UNION: the list of the member that the tag in the slot before names. Absent ones are None, absent scalars 0.
    """

    SCALAR = 0
    STRUCT = 1
    STRING = 2
    BYTES = 3
    NUMBERS = 4
    STRUCTS = 5
    STRINGS = 6
    TABLE = 7
    TABLES = 8
    UNION = 9


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table.

    Attributes:
        width: bytes in the table: of the scalar or struct itself, or 4 for an offset.
        align: what its position, or that of the vector's first element, is a multiple of.
        item_bytes: bytes of one element of a vector.
        limit: most elements of a vector.
        code: struct code of the scalar or of a vector's numbers.
        terminated: the bytes are a string, with a zero byte behind them.
    """

    slot: int
    name: str
    shape: Shape
    width: int = 4
    align: int = 4
    item_bytes: int = 1
    limit: int = 0
    code: str = ""
    terminated: bool = False
    required: bool = False
    free: bool = False
    table: Table | None = None
    members: tuple[Table | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the schema; *fields* are in slot order, None where a slot is a union's tag (read with the union)."""

    name: str
    fields: tuple[Field, ...]

    def slot(self, name: str) -> int:
        """Return the slot of the field called *name*."""
        return next(field.slot for field in self.fields if field.name == name)


Maker = Callable[[int, str], Field]


def _scalar(code: str, *, free: bool = False) -> Maker:
    width = struct.calcsize("<" + code)
    return lambda slot, name: Field(slot, name, Shape.SCALAR, width, width, code=code, free=free)


def _struct(size: int, *, required: bool = False, free: bool = False) -> Maker:
    return lambda slot, name: Field(slot, name, Shape.STRUCT, size, 8, required=required, free=free)


def _string(*, required: bool = False) -> Maker:
    return lambda slot, name: Field(slot, name, Shape.STRING, terminated=True, required=required)


def _free_string() -> Maker:
    return lambda slot, name: Field(slot, name, Shape.BYTES, terminated=True, free=True)


def _bytes(align: int) -> Maker:
    return lambda slot, name: Field(slot, name, Shape.BYTES, align=align, free=True)


def _numbers(code: str, limit: int) -> Maker:
    width = struct.calcsize("<" + code)
    return lambda slot, name: Field(slot, name, Shape.NUMBERS, align=width, item_bytes=width, limit=limit, code=code)


def _structs(size: int, limit: int) -> Maker:
    return lambda slot, name: Field(slot, name, Shape.STRUCTS, item_bytes=size, limit=limit, free=True)


def _strings(limit: int) -> Maker:
    return lambda slot, name: Field(slot, name, Shape.STRINGS, item_bytes=4, limit=limit)


def _one(table: Table) -> Maker:
    return lambda slot, name: Field(slot, name, Shape.TABLE, table=table)


def _many(table: Table, limit: int) -> Maker:
    return lambda slot, name: Field(slot, name, Shape.TABLES, item_bytes=4, limit=limit, table=table)


def _union(*members: Table) -> Maker:
    return lambda slot, name: Field(slot, name, Shape.UNION, members=(None, *members))


def _table(table_name: str, **makers: Maker) -> Table:
    """Return the table whose fields have the slots 0, 1, ... in the order given; a union takes two, the first for its tag."""
    fields: list[Field] = []
    for name, make in makers.items():
        field = make(len(fields), name)
        if field.shape is Shape.UNION:
            fields.append(_scalar("B")(len(fields), name + "_type"))
            field = replace(field, slot=len(fields))
        fields.append(field)
    return Table(table_name, tuple(fields))


# More dimensions than a tensor may have, so that the check of the rank can answer BAD_SHAPE rather than BAD_HEADER.
_MAX_DIMS = 64

LEASE_REF = _table("LeaseRef", region=_scalar("I"), generation=_scalar("I"), frame=_scalar("I"), nbytes=_scalar("Q"))

TENSOR = _table(
    "Tensor",
    name=_string(required=True),
    dtype=_scalar("B"),
    place=_scalar("B"),
    shape=_numbers("q", _MAX_DIMS),
    frame=_scalar("H"),
    nbytes=_scalar("Q"),
    # The schema forces 16, but the builders of some languages (Python's) do not: readers copy the bytes and ask for none.
    inline_data=_bytes(1),
    lease=_one(LEASE_REF),
    content_type=_string(),
)

PARAM = _table(
    "Param", name=_string(required=True), ptype=_scalar("B"), int_value=_scalar("q"), double_value=_scalar("d"), text=_string()
)

REQUESTED_OUTPUT = _table(
    "RequestedOutput", name=_string(required=True), place=_scalar("B"), lease=_one(LEASE_REF), params=_many(PARAM, MAX_LIST)
)

INFER = _table(
    "Infer",
    model=_string(required=True),
    version=_string(),
    inputs=_many(TENSOR, MAX_TENSORS),
    outputs=_many(REQUESTED_OUTPUT, MAX_TENSORS),
    params=_many(PARAM, MAX_LIST),
    client_request_id=_free_string(),
    key_policy=_scalar("B"),
    latest_n=_scalar("H"),
    finite=_scalar("?"),
    checksum=_scalar("Q", free=True),
)

INFER_OUT = _table(
    "InferOut",
    model=_string(),
    version=_string(),
    outputs=_many(TENSOR, MAX_TENSORS),
    params=_many(PARAM, MAX_LIST),
    timing=_structs(STAGE_TIME.size, MAX_LIST),
    retries=_scalar("B", free=True),
    backlog_us=_scalar("I", free=True),
)

FAILURE = _table(
    "Failure",
    code=_scalar("H", free=True),
    message=_free_string(),
    retry_after_us=_scalar("Q", free=True),
    stage=_free_string(),
    field=_free_string(),
)

CANCEL = _table("CancelBody", reason=_string())
HELLO = _table("HelloBody", client=_string(), identifiers=_strings(MAX_LIST), packed_replies=_scalar("?"))
LIMITS = _table(
    "Limits",
    max_header=_scalar("I"),
    max_payload=_scalar("Q"),
    max_frames=_scalar("H"),
    max_in_flight=_scalar("I"),
    default_budget_us=_scalar("Q"),
    max_budget_us=_scalar("Q"),
)
WELCOME = _table(
    "WelcomeBody",
    server=_string(),
    epoch=_scalar("Q"),
    limits=_one(LIMITS),
    lease_socket=_string(),
    lease_token=_string(),
)
HEALTH = _table("HealthBody", scope=_scalar("B"), model=_string(), version=_string())
HEALTH_OUT = _table("HealthOut", ok=_scalar("?"), state=_string(), queued=_scalar("I"), in_flight=_scalar("I"))
METADATA = _table("MetadataBody", model=_string(), version=_string())
TENSOR_SPEC = _table("TensorSpec", name=_string(required=True), dtype=_scalar("B"), shape=_numbers("q", _MAX_DIMS))
METADATA_OUT = _table(
    "MetadataOut",
    name=_string(),
    versions=_strings(MAX_LIST),
    platform=_string(),
    inputs=_many(TENSOR_SPEC, MAX_TENSORS),
    outputs=_many(TENSOR_SPEC, MAX_TENSORS),
    extensions=_strings(MAX_LIST),
    max_batch=_scalar("I"),
    stages=_strings(MAX_LIST),
)
CONTROL = _table("ControlBody", op=_scalar("B"), model=_string(), version=_string(), params=_many(PARAM, MAX_LIST))
CONTROL_OUT = _table("ControlOut", done=_scalar("?"), stats=_many(PARAM, MAX_STATS))

# The union's members by tag; tag 0 is "no body".
BODIES = (INFER, INFER_OUT, FAILURE, CANCEL, HELLO, WELCOME, HEALTH, HEALTH_OUT, METADATA, METADATA_OUT, CONTROL, CONTROL_OUT)


class BodyTag(IntEnum):
    """Which body a message has."""

    NONE = 0
    INFER = 1
    INFER_OUT = 2
    FAILURE = 3
    CANCEL = 4
    HELLO = 5
    WELCOME = 6
    HEALTH = 7
    HEALTH_OUT = 8
    METADATA = 9
    METADATA_OUT = 10
    CONTROL = 11
    CONTROL_OUT = 12


MESSAGE = _table(
    "Message",
    route=_struct(ROUTE.size, required=True, free=True),
    trace=_struct(TRACE_CONTEXT.size, free=True),
    tracestate=_free_string(),
    body=_union(*BODIES),
)


def absent(field: Field) -> Any:
    """Return what the verifier gives for a *field* that is not there: 0 or False for a scalar read by value, else None."""
    if field.shape is not Shape.SCALAR or field.free:
        return None
    return False if field.code == "?" else 0
