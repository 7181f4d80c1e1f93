"""The verifier finds what no field of a FlatBuffer may be, and bounds its own work."""

from __future__ import annotations

import struct
from typing import Any

import flatbuffers
import pytest
from headers import make_request, make_route, make_tensor

from schemas.encode import encode
from schemas.status import Code, Kind, RequestError
from schemas.tables import BodyTag
from schemas.verify import find_route, verify
from schemas.wire import MAX_HEADER_BYTES, ROUTE

ROUTE_BYTES = ROUTE.pack(*make_route())


def refused(header: bytes) -> RequestError:
    """Return the error with which *header* is refused."""
    with pytest.raises(RequestError) as caught:
        verify(header)
    return caught.value


def word_at(header: bytes, at: int, value: int) -> bytes:
    """Return *header* with another u32 at *at*."""
    return header[:at] + struct.pack("<I", value) + header[at + 4 :]


def message(write_body: Any, tag: int = BodyTag.INFER, slots: int = 5) -> bytes:
    """Return a Message with the ordinary Route, whose body is what *write_body* writes with the builder."""
    builder = flatbuffers.Builder(512)
    body = write_body(builder)
    builder.StartObject(slots)
    builder.PrependUOffsetTRelativeSlot(4, body, 0)
    builder.Prep(8, 56)
    builder.head -= 56
    builder.Bytes[builder.head : builder.head + 56] = ROUTE_BYTES
    builder.PrependStructSlot(0, builder.Offset(), 0)
    builder.PrependUint8Slot(3, tag, 0)
    if slots > 5:
        builder.PrependUint32Slot(slots - 1, 9, 0)
    builder.Finish(builder.EndObject(), b"SLT1")
    return bytes(builder.Output())


def cancel_body(builder: Any) -> int:
    """Write an empty CancelBody."""
    builder.StartObject(1)
    end: int = builder.EndObject()
    return end


def test_a_sound_header_gives_its_values_by_slot() -> None:
    """Scalars, strings and shapes by value, free contents by position."""
    header = make_request()
    route_at, trace, _tracestate, tag, body = verify(header).values
    inline_at, inline_bytes = body[2][0][6]

    assert (trace, tag, body[0]) == (None, BodyTag.INFER, "ticks")
    assert header[route_at : route_at + 56] == ROUTE_BYTES
    assert header[inline_at : inline_at + inline_bytes] == bytes(range(80))


def test_the_free_contents_are_reported() -> None:
    """Route and inline bytes here."""
    verified = verify(make_request())
    inline_at, inline_bytes = verified.values[4][2][0][6]

    assert sorted(verified.free) == [(verified.values[0], verified.values[0] + 56), (inline_at, inline_at + inline_bytes)]


def test_another_identifier_is_another_version() -> None:
    """A client of a later wire gets a code that says so."""
    header = make_request()

    assert refused(header[:4] + b"SLT2" + header[8:]).code == Code.UNSUPPORTED_VERSION


@pytest.mark.parametrize("size", [0, 1, 8, 11])
def test_a_frame_that_cannot_hold_a_table_is_refused(size: int) -> None:
    """An empty one too."""
    assert refused(bytes(size)).code == Code.BAD_HEADER


def test_a_header_above_the_limit_is_refused_unread() -> None:
    """Whatever it holds."""
    assert refused(make_request() + bytes(MAX_HEADER_BYTES)).code == Code.TOO_LARGE


def test_a_body_may_be_absent() -> None:
    """Credit has none."""
    header = encode(make_route(kind=Kind.CREDIT), BodyTag.NONE, {})

    assert verify(header).values[3:] == [0, None]


def test_fields_of_a_later_schema_are_ignored() -> None:
    """In the Message, beyond the last id that we know."""
    assert verify(message(cancel_body, BodyTag.CANCEL, slots=12)).values[3] == BodyTag.CANCEL


@pytest.mark.parametrize("tag", [0, 13, 255])
def test_an_unknown_body_is_refused(tag: int) -> None:
    """Also a body with the tag that means none."""
    assert refused(message(cancel_body, tag)).field == "body"


def test_a_tag_without_a_body_is_refused() -> None:
    """The two come together."""
    builder = flatbuffers.Builder(64)
    builder.StartObject(5)
    builder.Prep(8, 56)
    builder.head -= 56
    builder.PrependStructSlot(0, builder.Offset(), 0)
    builder.PrependUint8Slot(3, BodyTag.CANCEL, 0)
    builder.Finish(builder.EndObject(), b"SLT1")

    assert refused(bytes(builder.Output())).field == "body"


def test_a_message_without_a_route_is_refused() -> None:
    """It is required."""
    builder = flatbuffers.Builder(64)
    builder.StartObject(5)
    builder.Finish(builder.EndObject(), b"SLT1")

    assert refused(bytes(builder.Output())).field == "route"


def test_an_infer_without_a_model_is_refused() -> None:
    """The error names the path."""

    def no_model(builder: Any) -> int:
        builder.StartObject(10)
        end: int = builder.EndObject()
        return end

    error = refused(message(no_model))

    assert (error.code, error.field) == (Code.BAD_HEADER, "body.model")


def test_a_path_names_the_element_of_a_vector() -> None:
    """Here the second tensor has no name."""

    def unnamed(builder: Any) -> int:
        name = builder.CreateString("ticks")
        builder.StartObject(9)
        tensor = builder.EndObject()
        builder.StartVector(4, 1, 4)
        builder.PrependUOffsetTRelative(tensor)
        inputs = builder.EndVector()
        builder.StartObject(10)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUOffsetTRelativeSlot(2, inputs, 0)
        end: int = builder.EndObject()
        return end

    assert refused(message(unnamed)).field == "body.inputs[0].name"


def test_text_that_is_not_utf_8_is_refused() -> None:
    """Names are compared and logged as text."""
    header = make_request().replace(b"ticks", b"tic\xff\xfe")

    assert refused(header).field == "body.model"


def test_a_string_without_its_zero_byte_is_refused() -> None:
    """C readers would run on."""
    header = make_request()
    at = header.index(b"ticks\0") + 5

    assert refused(header[:at] + b"!" + header[at + 1 :]).field == "body.model"


@pytest.mark.parametrize("length", [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1_000])
def test_a_length_beyond_the_header_is_refused(length: int) -> None:
    """Also one that would wrap in 32 bits."""
    header = make_request()

    assert refused(word_at(header, header.index(b"ticks\0") - 4, length)).code == Code.BAD_HEADER


def test_more_tensors_than_allowed_are_refused() -> None:
    """At 65, by the vector's limit."""
    tensors = [make_tensor(name=f"x{index}", inline_data=b"") for index in range(65)]

    assert verify(make_request(inputs=tensors[:64])).values[4][2]
    assert refused(make_request(inputs=tensors)).field == "body.inputs"


def test_shared_parts_cannot_burn_time() -> None:
    """64 outputs that all point at one vector of 64 parameters would be 4,096 tables in 900 bytes."""

    def outputs_that_share(builder: Any) -> int:
        name = builder.CreateString("p")
        builder.StartObject(5)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        param = builder.EndObject()
        params = vector(builder, [param] * 64)
        builder.StartObject(4)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUOffsetTRelativeSlot(3, params, 0)
        outputs = vector(builder, [builder.EndObject()] * 64)
        builder.StartObject(10)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUOffsetTRelativeSlot(3, outputs, 0)
        end: int = builder.EndObject()
        return end

    assert "too many shared parts" in str(refused(message(outputs_that_share)))


def vector(builder: Any, offsets: list[int]) -> int:
    """Write a vector of *offsets*."""
    builder.StartVector(4, len(offsets), 4)
    for offset in offsets:
        builder.PrependUOffsetTRelative(offset)
    end: int = builder.EndVector()
    return end


def test_two_fields_may_share_a_string() -> None:
    """Builders offer it; only excess is refused."""

    def shared(builder: Any) -> int:
        name = builder.CreateString("x")
        builder.StartObject(10)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUOffsetTRelativeSlot(1, name, 0)
        end: int = builder.EndObject()
        return end

    assert verify(message(shared)).values[4][:2] == ["x", "x"]


def test_free_bytes_must_not_be_part_of_the_structure() -> None:
    """Else a cached layout could be changed from inside its own inline bytes."""
    header = make_request()
    inline_at, _ = verify(header).values[4][2][0][6]
    at = header.rindex(struct.pack("<I", 80), 0, inline_at)
    offset_at = next(at_ for at_ in range(0, at, 4) if at_ + struct.unpack_from("<I", header, at_)[0] == at)
    model_at = header.index(b"ticks\0") - 4
    moved = word_at(header, offset_at, model_at - offset_at)

    assert "overlap" in str(refused(moved))


def test_the_route_of_a_damaged_header_is_still_found() -> None:
    """So that the refusal carries the request's id."""
    header = make_request()
    damaged = word_at(header, header.index(b"ticks\0") - 4, 0x7FFFFFFF)

    assert refused(damaged)
    assert find_route(damaged) == verify(header).values[0]


@pytest.mark.parametrize("damaged_word", [0, 4])
def test_a_route_is_not_looked_for_without_root_or_identifier(damaged_word: int) -> None:
    """Nothing then says where it is."""
    assert find_route(word_at(make_request(), damaged_word, 0xFFFFFFF0)) is None
