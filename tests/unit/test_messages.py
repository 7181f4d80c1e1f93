"""The rare messages come back as they were written."""

from __future__ import annotations

import pytest
from headers import make_request, make_route

from schemas.encode import encode
from schemas.layout import Layout
from schemas.messages import (
    Body,
    Cancel,
    Control,
    ControlReply,
    Failure,
    Health,
    HealthReply,
    Hello,
    Metadata,
    MetadataReply,
    Welcome,
    read_message,
    write_message,
)
from schemas.status import Code, Flag, Kind, RequestError
from schemas.tables import BodyTag


@pytest.mark.parametrize(
    "body",
    [Failure(), Cancel(), Hello(), Welcome(), Health(), HealthReply(), Metadata(), MetadataReply(), Control(), ControlReply()],
)
def test_an_empty_body_comes_back_with_its_defaults(body: Body) -> None:
    """The golden messages hold the full ones."""
    assert read_message(write_message(body))[1] == body


def test_a_reply_is_final_and_a_question_is_not() -> None:
    """And both carry the ids they were given."""
    question, _ = read_message(write_message(Health(), (1, 2, 3)))
    answer, _ = read_message(write_message(HealthReply(), (1, 2, 3)))

    assert (question.flags, answer.flags) == (0, Flag.FINAL)
    assert (answer.request_id, answer.born_us, answer.key) == (1, 2, 3)


def test_requests_are_read_as_layouts() -> None:
    """One function reads every message, for tools and tests."""
    assert isinstance(read_message(make_request())[1], Layout)


def test_credit_has_no_body() -> None:
    """Its number is in the Route."""
    route, body = read_message(encode(make_route(kind=Kind.CREDIT, seq=5), BodyTag.NONE, {}))

    assert (route.seq, body) == (5, None)


def test_an_absent_field_is_its_default() -> None:
    """A Welcome of a server without limits."""
    assert read_message(encode(make_route(kind=Kind.WELCOME), BodyTag.WELCOME, {}))[1] == Welcome()


@pytest.mark.parametrize(
    ("number", "code"),
    [(999, Code.INTERNAL), (150, Code.NOT_SUPPORTED), (250, Code.BUSY), (350, Code.INTERNAL), (450, Code.CANCELLED)],
)
def test_a_code_of_a_later_server_is_read_as_its_group(number: int, code: Code) -> None:
    """What a client does about it depends on the group alone."""
    _, body = read_message(encode(make_route(kind=Kind.ERROR), BodyTag.FAILURE, {"code": number}))

    assert body == Failure(code)


def test_a_kind_that_is_not_the_bodys_is_refused() -> None:
    """A Cancel that claims to be a Hello."""
    with pytest.raises(RequestError) as caught:
        read_message(encode(make_route(kind=Kind.HELLO), BodyTag.CANCEL, {}))
    assert caught.value.code == Code.BAD_KIND


@pytest.mark.parametrize(
    ("tag", "kind", "field"), [(BodyTag.HEALTH, Kind.HEALTH, "scope"), (BodyTag.CONTROL, Kind.CONTROL, "op")]
)
def test_an_unknown_number_is_refused(tag: BodyTag, kind: Kind, field: str) -> None:
    """The error names the field."""
    with pytest.raises(RequestError) as caught:
        read_message(encode(make_route(kind=kind), tag, {field: 99}))
    assert (caught.value.code, caught.value.field) == (Code.BAD_PARAM, field)
