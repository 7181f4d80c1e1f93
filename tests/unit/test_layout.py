"""A layout holds what a request says apart from its free contents, checked as far as the header alone allows."""

from __future__ import annotations

from typing import Any

import pytest
from headers import frame_tensor, make_request, make_route

from schemas.encode import encode
from schemas.layout import (
    check_route,
    read_checksum,
    read_client_request_id,
    read_layout,
    read_route,
    read_timing,
    read_trace,
    route_if_readable,
)
from schemas.messages import Cancel, write_message
from schemas.status import Code, KeyPolicy, Kind, Place, RequestError
from schemas.tables import BodyTag


def refused(header: bytes) -> RequestError:
    """Return the error with which *header* is refused."""
    with pytest.raises(RequestError) as caught:
        read_layout(header)
    return caught.value


def test_what_a_request_leaves_out_has_the_schemas_defaults() -> None:
    """Any version, all outputs, no parameters."""
    header = make_request()
    layout = read_layout(header)

    assert (layout.version, layout.outputs, layout.params, layout.key_policy) == ("", (), {}, KeyPolicy.ONE_BY_ONE)
    assert (layout.latest_n, layout.finite, layout.frames) == (0, False, 0)
    assert (read_client_request_id(header, layout), read_checksum(header, layout), read_trace(header, layout)) == ("", 0, None)
    assert read_timing(header, layout) == []


def test_the_route_is_read_by_position() -> None:
    """All its fields."""
    header = make_request(make_route(key=3, seq=4, reserved2=5))

    assert read_route(header, read_layout(header)) == make_route(key=3, seq=4, reserved2=5)


def test_a_request_may_ask_for_some_outputs() -> None:
    """By name; a place is a wish."""
    header = make_request(outputs=[{"name": "a"}, {"name": "b", "place": Place.FRAME}])

    assert read_layout(header).outputs == ("a", "b")


def test_a_client_request_id_that_is_not_text_is_read_all_the_same() -> None:
    """It is only logged."""
    header = make_request(client_request_id=b"id-\xff")

    assert read_client_request_id(header, read_layout(header)) == "id-\ufffd"


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"model": ""}, Code.BAD_NAME, "model"),
        ({"client_request_id": "i" * 129}, Code.TOO_LARGE, "client_request_id"),
        ({"key_policy": 4}, Code.BAD_PARAM, "key_policy"),
        ({"key_policy": KeyPolicy.LATEST_N}, Code.BAD_PARAM, "latest_n"),
        ({"outputs": [{"name": ""}]}, Code.BAD_NAME, "outputs"),
        ({"outputs": [{"name": "a"}, {"name": "a"}]}, Code.BAD_NAME, "a"),
        ({"outputs": [{"name": "a", "place": Place.LEASE}]}, Code.BAD_LEASE, "a"),
        ({"outputs": [{"name": "a", "place": Place.FRAME, "lease": {"region": 1}}]}, Code.BAD_LEASE, "a"),
        ({"outputs": [{"name": "a", "place": 4}]}, Code.NOT_SUPPORTED, "a"),
        ({"outputs": [{"name": "a", "params": [{"name": "p", "ptype": 2}]}]}, Code.NOT_SUPPORTED, "a"),
    ],
)
def test_a_wrong_request_is_refused(changes: dict[str, Any], code: Code, field: str) -> None:
    """Each fault with its code and field."""
    error = refused(make_request(**changes))

    assert (error.code, error.field) == (code, field)


def test_other_bodies_have_only_a_route_and_a_tag() -> None:
    """Their contents are read by read_message."""
    layout = read_layout(write_message(Cancel("why")))

    assert (layout.tag, layout.kinds, layout.model, layout.tensors) == (BodyTag.CANCEL, (Kind.CANCEL,), "", ())


def test_a_route_that_fits_its_message_is_taken() -> None:
    """Two tensors in two frames."""
    header = make_request(make_route(payload_frames=2), inputs=[frame_tensor("a", 0), frame_tensor("b", 1)])
    layout = read_layout(header)

    check_route(read_route(header, layout), layout, frames_present=2)


@pytest.mark.parametrize(("payload_frames", "frames_present"), [(1, 1), (1, 2), (2, 1), (0, 0), (2, 3)])
def test_frames_that_differ_from_what_the_header_says_are_refused(payload_frames: int, frames_present: int) -> None:
    """The Route, the tensors and the frames must agree."""
    header = make_request(make_route(payload_frames=payload_frames), inputs=[frame_tensor("a", 0), frame_tensor("b", 1)])
    layout = read_layout(header)

    with pytest.raises(RequestError) as caught:
        check_route(read_route(header, layout), layout, frames_present)
    assert caught.value.code == Code.BAD_FRAMES


@pytest.mark.parametrize("kind", [Kind.UNSET, Kind.CANCEL, Kind.INFER_REPLY, 255])
def test_a_kind_that_is_not_the_bodys_is_refused(kind: int) -> None:
    """An Infer is a request, whatever the Route claims."""
    header = make_request(make_route(kind=kind))
    layout = read_layout(header)

    with pytest.raises(RequestError) as caught:
        check_route(read_route(header, layout), layout, 0)
    assert caught.value.code == Code.BAD_KIND


def test_an_empty_reply_has_no_times() -> None:
    """A server may leave all of it out."""
    header = encode(make_route(kind=Kind.INFER_REPLY), BodyTag.INFER_OUT, {})

    assert read_timing(header, read_layout(header)) == []


def test_a_refusal_can_carry_the_id_of_a_damaged_request() -> None:
    """Here the name of the model runs beyond the header."""
    header = make_request()
    at = header.index(b"ticks\0") - 4
    damaged = header[:at] + b"\xff" * 4 + header[at + 4 :]

    assert refused(damaged).code == Code.BAD_HEADER
    assert route_if_readable(damaged) == make_route()


def test_bytes_that_are_no_header_have_no_id() -> None:
    """The reply then has id 0."""
    assert route_if_readable(b"GET / HTTP/1.1\r\n\r\n") is None
