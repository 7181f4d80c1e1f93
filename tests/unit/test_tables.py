"""The tables and the enumerations in Python are those of the schema."""

from __future__ import annotations

import importlib
import re
from enum import IntEnum, IntFlag
from pathlib import Path

import pytest

from schemas import params, status, tables, tensors
from schemas.tables import Field, Shape, Table

SCHEMA = re.sub(r"//[^\n]*", "", (Path(tables.__file__).parent / "infer.fbs").read_text())
SCALARS = {"?": "bool", "B": "ubyte", "H": "ushort", "I": "uint", "Q": "ulong", "q": "long", "d": "double"}
ENUMS = set(re.findall(r"enum (\w+) *: *ubyte", SCHEMA))
USHORT_ENUMS = set(re.findall(r"enum (\w+) *: *ushort", SCHEMA))
TABLES = {table.name: table for table in vars(tables).values() if isinstance(table, Table)}


def declared(name: str) -> dict[int, tuple[str, str, bool]]:
    """Return id -> (field name, type, required) of a table of the schema."""
    body = re.search(rf"table {name} {{(.*?)}}", SCHEMA, re.DOTALL)
    assert body is not None
    found = re.findall(r"(\w+): *(\[?\w+\]?) *\(id: (\d+)([^)]*)\)", body[1])
    return {int(number): (field, kind, "required" in more) for field, kind, number, more in found}


def described(field: Field) -> str:
    """Return the schema's type of *field*, with enumerations as their numbers."""
    if field.shape is Shape.SCALAR:
        return SCALARS[field.code]
    if field.shape is Shape.NUMBERS:
        return f"[{SCALARS[field.code]}]"
    if field.shape is Shape.BYTES:
        return "string" if field.terminated else "[ubyte]"
    if field.shape in (Shape.TABLE, Shape.TABLES):
        assert field.table is not None
        return field.table.name if field.shape is Shape.TABLE else f"[{field.table.name}]"
    struct = {"route": "Route", "trace": "TraceContext"}.get(field.name, "")
    return {
        Shape.STRUCT: struct, Shape.STRING: "string", Shape.STRUCTS: "[StageTime]", Shape.STRINGS: "[string]", Shape.UNION: "Body"
    }[field.shape]  # fmt: skip


def test_every_table_of_the_schema_is_there() -> None:
    """And no other."""
    assert set(TABLES) == set(re.findall(r"table (\w+)", SCHEMA))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_fields_of_the_schema(name: str) -> None:
    """Ids, names, types and what is required."""
    ours = {
        field.slot: (field.name, described(field), field.required) for field in TABLES[name].fields if field.name != "body_type"
    }
    theirs = {
        number: (field, "ubyte" if kind in ENUMS else "ushort" if kind in USHORT_ENUMS else kind, required)
        for number, (field, kind, required) in declared(name).items()
    }

    assert ours == theirs


def test_the_bodies_have_the_tags_of_the_union() -> None:
    """In the order of the schema, from 1."""
    generated = vars(importlib.import_module("schemas.fb.Body").Body)

    assert [generated[table.name] for table in tables.BODIES] == list(range(1, len(tables.BODIES) + 1))
    assert len(tables.BodyTag) == len(tables.BODIES) + 1


@pytest.mark.parametrize(
    "ours",
    [
        status.Code,
        status.Kind,
        status.Flag,
        status.Place,
        status.KeyPolicy,
        status.HealthScope,
        status.ControlOp,
        tensors.DType,
        params.ParamType,
    ],
)
def test_an_enumeration_has_the_numbers_of_the_schema(ours: type[IntEnum] | type[IntFlag]) -> None:
    """Names are compared without case and underscores."""
    generated = vars(getattr(importlib.import_module(f"schemas.fb.{ours.__name__}"), ours.__name__))
    theirs = {name.replace("_", "").upper(): value for name, value in generated.items() if isinstance(value, int)}

    assert {member.name.replace("_", ""): member.value for member in ours} == theirs


def test_the_schema_nests_few_levels() -> None:
    """The verifier needs no cap on depth, because no table can hold itself."""

    def depth(table: Table) -> int:
        inner = [field.table for field in table.fields if field.table]
        inner += [member for field in table.fields for member in field.members if member]
        return 1 + max((depth(child) for child in inner), default=0)

    assert depth(tables.MESSAGE) == 4
