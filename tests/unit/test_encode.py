"""The encoder writes ordinary FlatBuffers, which the generated accessors read."""

from __future__ import annotations

import pytest
from headers import make_request, make_route

from schemas.encode import encode
from schemas.fb.InferOut import InferOut
from schemas.fb.Message import Message
from schemas.fb.MetadataOut import MetadataOut
from schemas.status import Code, Kind, RequestError
from schemas.tables import BodyTag
from schemas.verify import verify


def test_nested_tables_and_vectors_are_read_in_order() -> None:
    """By generated code, which knows nothing of our tables."""
    specs = [{"name": "a", "dtype": 11, "shape": [-1, 3]}, {"name": "b", "dtype": 9, "shape": [1]}]
    body = {"name": "m", "versions": ["1", "2"], "inputs": specs, "max_batch": 32}
    read = MetadataOut()
    table = Message.GetRootAs(encode(make_route(), BodyTag.METADATA_OUT, body)).Body()
    read.Init(table.Bytes, table.Pos)

    assert (read.Name(), read.MaxBatch()) == (b"m", 32)
    assert [read.Versions(index) for index in range(read.VersionsLength())] == [b"1", b"2"]
    assert [(read.Inputs(index).Name(), read.Inputs(index).Shape(0)) for index in range(2)] == [(b"a", -1), (b"b", 1)]


def test_a_free_scalar_is_written_even_when_it_is_0() -> None:
    """A template needs a place to patch; other scalars that are 0 stay away."""
    header = encode(make_route(kind=Kind.INFER_REPLY), BodyTag.INFER_OUT, {"retries": 0, "backlog_us": 0})
    *_, retries_at, backlog_at = verify(header).values[4]
    table = Message.GetRootAs(header).Body()
    read = InferOut()
    read.Init(table.Bytes, table.Pos)

    assert None not in (retries_at, backlog_at)
    assert (read.Retries(), read.BacklogUs()) == (0, 0)


def test_equal_messages_are_equal_bytes() -> None:
    """Else no two clients would share a layout."""
    assert make_request() == make_request()


def test_a_field_that_the_schema_does_not_have_is_our_mistake() -> None:
    """A typing error is found at once."""
    with pytest.raises(AssertionError, match="modle"):
        encode(make_route(), BodyTag.INFER, {"modle": "ticks"})


def test_a_header_that_no_reader_would_take_is_not_written() -> None:
    """More statistics than fit."""
    stats = [{"name": f"{index:0100}", "ptype": 2, "int_value": 1} for index in range(1_000)]

    with pytest.raises(RequestError) as caught:
        encode(make_route(), BodyTag.CONTROL_OUT, {"stats": stats})
    assert caught.value.code == Code.OUTPUT_TOO_LARGE
