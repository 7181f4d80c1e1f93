"""The fixed structs of the wire are as large, and laid out, as the schema says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headers import make_request, make_route

from schemas import wire
from schemas.fb.Message import Message
from schemas.layout import read_layout

SCHEMA = (Path(wire.__file__).parent / "infer.fbs").read_text()


def test_the_structs_have_their_frozen_sizes() -> None:
    """A grown struct breaks every deployed reader, and no compiler notices."""
    assert (wire.ROUTE.size, wire.TRACE_CONTEXT.size, wire.STAGE_TIME.size) == (56, 32, 12)


@pytest.mark.parametrize(("name", "names"), [("Route", wire.Route._fields), ("TraceContext", wire.Trace._fields)])
def test_the_tuples_name_the_fields_as_the_schema_does(name: str, names: tuple[str, ...]) -> None:
    """In the same order."""
    body = re.search(rf"struct {name} {{(.*?)\n}}", SCHEMA, re.DOTALL)

    assert body is not None
    assert tuple(re.findall(r"(\w+): *\w+;", body[1])) == names


def test_the_generated_accessors_find_every_field_of_a_route() -> None:
    """Each field with a value of its own."""
    route = make_route(**{name: index + 1 for index, name in enumerate(wire.Route._fields) if name != "kind"}, kind=1)
    read = Message.GetRootAs(make_request(route)).Route()

    accessors = ["".join(part.capitalize() for part in name.split("_")) for name in wire.Route._fields]
    assert tuple(getattr(read, accessor)() for accessor in accessors) == route


def test_a_route_lies_where_numpy_or_cpp_may_read_it_in_place() -> None:
    """At a multiple of 8."""
    assert read_layout(make_request()).route_at % 8 == 0
