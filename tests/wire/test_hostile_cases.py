"""Hostile messages by name, each with the one code and field that answer it; and what the broker does beside answering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from door import Door, Reply
from fields_text import Checker, fields_text
from headers import frame_tensor, make_route
from hostile_requests import CONTENTS, CONTROL, ESCAPES, KINDS, MODELS, TENSORS, ask, one
from hostile_structure import FRAMES, GOOD, ID, STRUCTURE, Case, case, packed, request
from mutant_parts import is_sound

from schemas.messages import Health
from schemas.status import Code, Flag, HealthScope

# In the order of the checks.
CASES: Mapping[str, Case] = FRAMES | STRUCTURE | KINDS | TENSORS | MODELS | CONTENTS
# Codes of the group "the request is wrong" that need something else: a stage that decodes, keys.
ELSEWHERE = {Code.BAD_IMAGE, Code.UNAUTHORIZED, Code.DUPLICATE_ID}


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    """The clients' socket; one for all cases, so that each is also a test of what the one before left."""
    made = Door()
    yield made
    made.close()


@pytest.fixture(scope="module")
def control() -> Iterator[Door]:
    """The control socket."""
    made = Door(is_control=True)
    yield made
    made.close()


def refusal(door: Door, case: Case) -> Reply:
    """Return the one answer to a case, after the checks that hold for all of them."""
    replies = door.ask(case.frames)
    assert [(reply.request_id, reply.code, reply.field) for reply in replies] == [(case.request_id, case.code, case.field)]
    (reply,) = replies
    assert reply.message.isascii()
    assert reply.message.isprintable()
    assert len(reply.message) < 300
    return reply


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_message_gets_its_code(door: Door, name: str) -> None:
    """By its id when the Route is readable, with the field at fault; the next good request is served."""
    refusal(door, CASES[name])

    assert [reply.code for reply in door.ask([GOOD])] == [0]


@pytest.mark.parametrize("name", CONTROL)
def test_a_hostile_order_gets_its_code(control: Door, name: str) -> None:
    """On the control socket."""
    refusal(control, CONTROL[name])


def test_a_question_that_is_refused_is_not_counted_as_malformed(door: Door) -> None:
    """A person who looks for broken peers must not find those that asked for a model that is gone, or whose key is."""
    ledger = door.core.ledger
    before = ledger.snapshot(0)

    refusal(door, KINDS["an order on the clients' socket"])
    refusal(door, MODELS["metadata of no model"])
    refusal(door, KINDS["no kind"])
    next(iter(door.roster.clients.values())).barred = "its key is not on the server's list"
    refusal(door, case(ask(Health(HealthScope.LIVE)), Code.UNAUTHORIZED, ""))
    next(iter(door.roster.clients.values())).barred = ""
    refusal(door, STRUCTURE["a header of zeros"])

    after = ledger.snapshot(0)
    assert {name for name in after if after[name] != before[name]} == {"malformed", "refused_questions"}
    assert (after["malformed"], after["refused_questions"]) == (before["malformed"] + 1, before["refused_questions"] + 4)


def test_there_are_a_hundred_cases_and_every_code() -> None:
    """Each code that says that a request is wrong, but those that need a stage, a key or two requests."""
    provoked = {case.code for case in (*CASES.values(), *CONTROL.values())}

    assert len(CASES) >= 100
    assert provoked == {code for code in Code if 100 <= code < 200} - ELSEWHERE


def test_cpp_takes_every_hostile_header_that_we_take(cpp_fields: Checker) -> None:
    """Its verifier knows nothing of ours."""
    headers = {frame for case in (*CASES.values(), *CONTROL.values()) for frame in case.frames if is_sound(frame)}

    assert len(headers) > 80
    assert cpp_fields(list(headers)) == [fields_text(header) for header in headers]


def test_what_a_peer_wrote_is_echoed_escaped_and_short(door: Door) -> None:
    """Neither a terminal nor a log is driven by it."""
    for hostile in (MODELS["a model with escapes in 30 kB of name"], MODELS["an input too many, its name full of escapes"]):
        reply = refusal(door, hostile)
        assert "\\x1b[2J\\x00\\x0d\\x0a" in reply.message
        assert "x" * 65 not in reply.message


def test_a_name_full_of_escapes_that_a_lane_takes_is_not_echoed_raw(door: Door) -> None:
    """It is a name like any other, until something about it is wrong."""
    (served,) = door.ask([one(name="\x1b[2J")])
    (refused,) = door.ask([request(make_route(payload_frames=1), inputs=[frame_tensor("\x1b[2J", 0)]), b"short"])

    assert served.code == 0
    assert (refused.code, refused.field) == (Code.SIZE_MISMATCH, "\\x1b[2J")
    assert refused.message.startswith("\\x1b[2J: expected 80 bytes")
    assert ESCAPES.startswith("\x1b[2J")


def test_the_second_of_two_packed_requests_with_one_id_is_refused_by_id_0(door: Door) -> None:
    """So that the first keeps its answer."""
    refused = door.admit([packed(ID), packed(ID)])

    assert [(reply.request_id, reply.code) for reply in refused] == [(0, Code.DUPLICATE_ID)]
    assert [(reply.request_id, reply.code) for reply in door.ask([packed(8)])] == [(ID, 0), (8, 0)]


def test_a_request_with_an_id_in_flight_is_refused_by_id_0(door: Door) -> None:
    """Whatever is wrong with it."""
    assert door.admit([GOOD]) == []
    others = [GOOD, request(model="none"), request(make_route(payload_frames=9)), one(dtype=99)]
    refused = [(reply.request_id, reply.code) for other in others for reply in door.admit([other])]

    assert refused == [(0, Code.DUPLICATE_ID), (0, Code.DUPLICATE_ID), (0, Code.BAD_FRAMES), (0, Code.BAD_DTYPE)]
    assert [(reply.request_id, reply.code) for reply in door.ask([packed(8)])] == [(ID, 0), (8, 0)]


def test_a_peer_that_uses_a_delimiter_gets_one(door: Door) -> None:
    """Also in front of a refusal."""
    asked = door.ask([b"", request(make_route(kind=99))])

    assert [reply.code for reply in asked] == [Code.BAD_KIND]
    assert next(iter(door.roster.clients.values())).delimiter


def test_a_message_of_a_million_frames_holds_nobody_up() -> None:
    """It is read in many turns, and between two of them others are served; then it is refused."""
    door = Door()
    door.send([GOOD, *[b""] * 100_000])
    turns = 0
    while door.turn():
        turns += 1
        assert door.core.ledger.finals == 0

    assert turns > 1
    assert [(reply.request_id, reply.code) for reply in door.replies()] == [(ID, Code.BAD_FRAMES)]
    door.close()


def test_headers_that_take_long_to_check_are_checked_in_many_turns() -> None:
    """A turn ends some milliseconds after its time, whatever came."""
    door = Door()
    params = [{"name": f"{i}"} for i in range(64)]
    outputs = [{"name": f"o{i}", "params": params} for i in range(48)]
    slow = [request(make_route(request_id=i, flags=Flag.PACKED), outputs=outputs) for i in range(1, 17)]
    door.send(slow)
    turns = 1
    while door.turn():
        turns += 1

    assert turns > 1
    assert [reply.code for reply in door.replies()] == [Code.NOT_SUPPORTED] * 16
    door.close()
