"""The session: calls in flight, what requests carry, what replies mean. Replies are made by the codec, as a server makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from client_helpers import LIMITS, MS, TICK, error, make_session, read, reply, reply_in_frames, submit, tensor_bytes

from clients.calls import Result
from clients.errors import (
    BadReply,
    Busy,
    Cancelled,
    ConnectionLost,
    DeadlineExceeded,
    RequestFailed,
    RequestRefused,
    SlotlineError,
    Superseded,
)
from clients.session import Session
from schemas.messages import (
    Cancel,
    Control,
    ControlReply,
    Health,
    HealthReply,
    Hello,
    Metadata,
    MetadataReply,
    Welcome,
    read_message,
    write_message,
)
from schemas.status import Code, ControlOp, Flag, KeyPolicy, Kind
from schemas.templates import TensorForm
from schemas.tensors import DType


def test_a_request_carries_its_tensor_id_and_budget() -> None:
    """The header is an ordinary inference request."""
    outgoing = submit(make_session(), budget_us=5_000)
    route, layout = read(outgoing)

    assert (route.kind, route.request_id, route.budget_us) == (Kind.INFER_REQUEST, outgoing.call.request_id, 5_000)
    assert (layout.model, layout.tensors[0].dtype, layout.tensors[0].shape) == ("ticks", DType.FP32, (1, 20))
    assert tensor_bytes(outgoing) == {"x": TICK.tobytes()}


def test_ids_differ() -> None:
    """Two calls never share one, whatever they are."""
    session = make_session()

    assert len({submit(session).call.request_id, session.ask(Health(), 0).call.request_id, submit(session).call.request_id}) == 3


def test_a_reply_ends_its_call_with_the_outputs() -> None:
    """The arrays are views of the reply."""
    session = make_session()
    call = submit(session).call

    session.receive(reply(call, 0.25))
    result = call.result()

    assert isinstance(result, Result)
    assert {name: array.tolist() for name, array in result.items()} == {"y": [[0.25]]}
    assert session.in_flight == 0


def test_a_result_tells_what_ran_and_how_long() -> None:
    """Times, retries and version are those of the reply."""
    session = make_session()
    call = submit(session).call
    session.receive(reply(call))
    result = call.result()

    assert (result.model, result.version, result.retries, result.backlog_us) == ("ticks", "1", 1, 9)
    assert result.timing == ((1, 2, 3), (4, 5, 6))


def test_replies_end_calls_in_any_order() -> None:
    """Each goes to the call that it names."""
    session = make_session()
    first, second = submit(session).call, submit(session).call

    session.receive(reply(second, 2))
    assert (first.outcome, second.result()["y"].item()) == (None, 2)

    session.receive(reply(first, 1))
    assert first.result()["y"].item() == 1


def test_a_packed_message_ends_all_its_calls() -> None:
    """Each frame is a complete reply; errors among them too."""
    session = make_session()
    first, second, third = (submit(session).call for _ in range(3))
    packed = Flag.FINAL | Flag.PACKED

    session.receive(reply(first, 1, flags=packed), [reply(second, 2, flags=packed), error(third, Code.BUSY)])

    assert (first.result()["y"].item(), second.result()["y"].item()) == (1, 2)
    assert isinstance(third.outcome, Busy)


def test_outputs_may_be_in_frames() -> None:
    """Each array is a view of its frame."""
    session = make_session()
    call = submit(session).call
    frame = np.arange(6, dtype=np.float64).tobytes()

    session.receive(reply_in_frames(call, [TensorForm("y", DType.FP64, (2, 3), 48)]), [memoryview(frame)])

    assert call.result()["y"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.BAD_SHAPE, RequestRefused),
        (Code.BUSY, Busy),
        (Code.DRAINING, Busy),
        (Code.STAGE_DIED, RequestFailed),
        (Code.DEADLINE_EXCEEDED, DeadlineExceeded),
        (Code.CANCELLED, Cancelled),
        (Code.SUPERSEDED, Superseded),
    ],
)
def test_an_error_reply_is_raised_as_what_a_caller_does_about_it(code: Code, kind: type[SlotlineError]) -> None:
    """One class per hundred of codes, and one each for what ends by somebody's act."""
    session = make_session()
    call = submit(session).call

    session.receive(error(call, code))

    with pytest.raises(kind) as raised:
        call.result()
    assert raised.value.code == code


def test_an_error_keeps_what_the_server_said() -> None:
    """Message, field, stage and the wait before the next try."""
    session = make_session()
    call = submit(session).call

    session.receive(error(call, Code.BUSY, "backlog: full", retry_after_us=1_500, field="backlog"))

    outcome = call.outcome
    assert isinstance(outcome, Busy)
    assert (outcome.message, outcome.field, outcome.stage, outcome.retry_after_us) == ("backlog: full", "backlog", "infer", 1_500)


def test_a_budget_is_sent_and_ends_the_call() -> None:
    """The call's deadline is the budget from the moment it was made."""
    outgoing = submit(make_session(), budget_us=2_000, now_ns=10 * MS)

    assert (read(outgoing)[0].budget_us, outgoing.call.deadline_ns) == (2_000, 12 * MS)


@pytest.mark.parametrize("options", [{}, {"budget_us": 0}])
def test_a_call_without_a_budget_gets_the_lanes_default(options: dict[str, int]) -> None:
    """It lasts as long as the client's timeout, in case the server does not answer."""
    session = make_session(timeout_us=5_000_000)

    outgoing = submit(session, **options)

    assert (read(outgoing)[0].budget_us, outgoing.call.deadline_ns) == (0, 5_000 * MS)


def test_a_client_with_less_patience_than_the_lane_asks_for_no_more_than_it_has() -> None:
    """Nobody would be there for a later answer."""
    session = make_session(timeout_us=500)

    assert read(submit(session))[0].budget_us == 500


def test_key_birth_and_idempotence_are_in_the_route() -> None:
    """Inference is idempotent unless the caller says otherwise."""
    session = make_session()
    plain, special = read(submit(session))[0], read(submit(session, key=42, born_us=7, idempotent=False))[0]

    assert (plain.key, plain.born_us, plain.flags) == (0, 0, Flag.IDEMPOTENT)
    assert (special.key, special.born_us, special.flags) == (42, 7, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"budget_us": -1},
        {"budget_us": 1_000_001},
        {"key": -1},
        {"born_us": 1 << 64},
        {"priority": 256},
        {"params": {"a": 1 << 63}},
    ],
)
def test_a_number_out_of_range_is_refused_before_it_is_sent(options: dict[str, object]) -> None:
    """The error names the field, and no call is left behind."""
    session = make_session()

    with pytest.raises(RequestRefused, match="expected") as raised:
        submit(session, **options)
    assert raised.value.code == Code.BAD_PARAM
    assert session.in_flight == 0


def test_an_unknown_option_is_a_mistake_of_the_program() -> None:
    """It is named, with those that there are."""
    with pytest.raises(TypeError, match=r"unknown option budget_ms.*budget_us"):
        submit(make_session(), budget_ms=5)


def test_more_calls_than_the_server_takes_are_refused_here() -> None:
    """The limit is the Welcome's."""
    session = make_session()
    for _ in range(LIMITS.max_in_flight):
        submit(session)

    with pytest.raises(Busy, match="max_in_flight"):
        submit(session)


def test_a_request_larger_than_the_server_takes_is_refused_here() -> None:
    """All frames of one message count."""
    with pytest.raises(RequestRefused, match="at most 1048576 bytes") as raised:
        submit(make_session(), {"x": np.zeros(1 << 20, np.uint8), "y": np.zeros(1, np.uint8)})
    assert raised.value.code == Code.TOO_LARGE


def test_other_limits_count_for_forms_that_are_known() -> None:
    """A server that was restarted with a smaller limit is not sent what it refuses."""
    session = make_session()
    inputs = {"x": np.zeros(100_000, np.uint8)}
    submit(session, inputs)

    session.welcome(Welcome("test", 8, LIMITS.__class__(max_payload=65_536)))

    assert session.epoch == 8
    with pytest.raises(RequestRefused, match="at most 65536 bytes"):
        submit(session, inputs)


def test_a_late_call_expires_alone() -> None:
    """Others go on until their own deadline."""
    session = make_session()
    short, long = submit(session, budget_us=1_000).call, submit(session, budget_us=2_000).call

    session.expire(1 * MS)

    with pytest.raises(DeadlineExceeded):
        short.result()
    assert long.outcome is None


def test_a_reply_after_the_deadline_is_ignored() -> None:
    """It is counted as a stray and changes nothing."""
    session = make_session()
    call = submit(session, budget_us=1_000).call
    session.expire(1 * MS)

    session.receive(reply(call))

    assert isinstance(call.outcome, DeadlineExceeded)
    assert session.strays == 1


def test_a_second_reply_is_ignored() -> None:
    """The first one counts."""
    session = make_session()
    call = submit(session).call

    session.receive(reply(call, 1))
    session.receive(reply(call, 2))

    assert call.result()["y"].item() == 1
    assert session.strays == 1


def test_the_end_of_the_connection_ends_every_call() -> None:
    """Each says so by its model's name."""
    session = make_session()
    calls = [submit(session).call for _ in range(3)]

    session.end_all(lambda model: ConnectionLost(f"{model}: gone"))

    for call in calls:
        with pytest.raises(ConnectionLost, match="ticks: gone"):
            call.result()
    assert session.in_flight == 0


def test_a_cancelled_call_ends_at_once_and_tells_the_server() -> None:
    """The message names the request."""
    session = make_session()
    call = submit(session).call

    message = session.cancel(call)

    assert isinstance(call.outcome, Cancelled)
    assert message is not None
    route, body = read_message(message)
    assert (route.request_id, body) == (call.request_id, Cancel())


def test_a_call_that_has_ended_cannot_be_cancelled() -> None:
    """Its result stays."""
    session = make_session()
    call = submit(session).call
    session.receive(reply(call, 3))

    assert session.cancel(call) is None
    assert call.result()["y"].item() == 3


def test_a_result_that_is_not_there_yet_is_a_timeout_and_the_call_goes_on() -> None:
    """A later reply is still taken."""
    session = make_session()
    call = submit(session).call

    with pytest.raises(TimeoutError, match="the call goes on"):
        call.result(timeout_s=0)
    session.receive(reply(call, 1))

    assert call.done()
    assert call.result()["y"].item() == 1


def test_hello_asks_for_packed_replies() -> None:
    """And says what it can read."""
    _, body = read_message(Session(timeout_us=1, wait=lambda *_: None).hello(0, timeout_us=1).header)

    assert isinstance(body, Hello)
    assert body.packed_replies
    assert body.identifiers == ("SLT1",)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (Hello(), Welcome("test", 5)),
        (Health(), HealthReply(ok=True, state="serving")),
        (Metadata("ticks"), MetadataReply("ticks")),
        (Control(ControlOp.STATS), ControlReply(done=True, stats={"a": 1})),
    ],
)
def test_a_question_ends_with_the_body_of_its_answer(question: Hello, answer: Welcome) -> None:
    """Whatever it is about."""
    session = make_session()
    call = session.ask(question, 0).call

    session.receive(write_message(answer, (call.request_id, 0, 0)))

    assert call.result() == answer


def test_an_answer_of_another_kind_is_no_answer() -> None:
    """A question about health is not answered by metadata, nor a request by a Welcome."""
    session = make_session()
    question, request = session.ask(Health(), 0).call, submit(session).call

    session.receive(write_message(MetadataReply("ticks"), (question.request_id, 0, 0)))
    session.receive(write_message(Welcome("test", 5), (request.request_id, 0, 0)))

    for call in (question, request):
        with pytest.raises(BadReply, match="kind: expected"):
            call.result()


def test_a_frame_of_the_wrong_size_ends_only_its_call() -> None:
    """Nothing is read past the end of a frame."""
    session = make_session()
    call, other = submit(session).call, submit(session).call

    session.receive(reply_in_frames(call, [TensorForm("y", DType.FP64, (2, 3), 48)]), [bytes(47)])

    with pytest.raises(BadReply, match="y: expected 48 bytes, got 47"):
        call.result()
    assert other.outcome is None


def test_a_missing_frame_ends_only_its_call() -> None:
    """The header says how many there are."""
    session = make_session()
    call = submit(session).call

    session.receive(reply_in_frames(call, [TensorForm("y", DType.FP64, (2, 3), 48)]))

    assert isinstance(call.outcome, BadReply)


def test_a_damaged_reply_ends_its_call_when_its_route_is_readable() -> None:
    """The caller learns that the reply was no good."""
    session = make_session()
    call = submit(session).call
    header = bytearray(reply(call))
    header[header.index(b"ticks") - 4] = 255

    session.receive(bytes(header))

    with pytest.raises(BadReply, match="not a valid reply"):
        call.result()


@pytest.mark.parametrize("garbage", [b"", b"hello world", b"\x10\0\0\0SLT1" + bytes(64)])
def test_what_is_no_message_ends_the_trust_in_the_connection(garbage: bytes) -> None:
    """Nobody knows which call it was to answer."""
    session = make_session()
    submit(session)

    with pytest.raises(BadReply, match="no valid message"):
        session.receive(garbage)


def test_a_request_that_may_be_packed_says_so() -> None:
    """Only without frames: a packed message has none."""
    session = make_session()
    small = session.submit("ticks", {"x": TICK}, {}, 0, may_pack=True)
    large = session.submit("ticks", {"x": np.zeros(5_000, np.uint8)}, {}, 0, may_pack=True)

    assert (read(small)[0].flags, read(large)[0].flags) == (Flag.IDEMPOTENT | Flag.PACKED, Flag.IDEMPOTENT)


def test_a_call_that_waits_for_the_connection_has_nothing_to_send() -> None:
    """It ends like any other, also by its deadline."""
    session = make_session(timeout_us=5_000)
    connected, late = session.await_welcome(0), session.await_welcome(0)

    session.end_one(connected.call, True)
    session.expire(5 * MS)

    assert connected.header == b""
    assert connected.call.result() is True
    assert isinstance(late.call.outcome, DeadlineExceeded)


def test_the_earliest_deadline_is_that_of_the_next_call_to_end() -> None:
    """None when no call is left."""
    session = make_session()
    for budget_us in (3_000, 1_000, 2_000):
        submit(session, budget_us=budget_us)

    assert session.earliest_deadline_ns() == 1 * MS
    session.expire(1 * MS)
    assert session.earliest_deadline_ns() == 2 * MS
    session.expire(3 * MS)
    assert session.earliest_deadline_ns() is None


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"key_policy": KeyPolicy.ORDERED}, "key"),
        ({"key_policy": 4, "key": 1}, "key_policy"),
        ({"key_policy": KeyPolicy.LATEST_N, "key": 1}, "latest_n"),
        ({"key_policy": KeyPolicy.LATEST_ONLY, "key": 1, "latest_n": 2}, "latest_n"),
        ({"latest_n": 2}, "latest_n"),
    ],
)
def test_a_key_policy_that_makes_no_sense_is_refused_here(options: Any, field: str) -> None:
    """Nothing is sent."""
    session = make_session()

    with pytest.raises(RequestRefused, match=f"BAD_PARAM.*{field}:"):
        submit(session, **options)
    assert session.in_flight == 0


def test_a_key_policy_is_written_into_the_header() -> None:
    """As the server will read it."""
    options: Any = {"key": 5, "key_policy": KeyPolicy.LATEST_N, "latest_n": 3}
    _, layout = read(submit(make_session(), **options))

    assert (layout.key_policy, layout.latest_n) == (KeyPolicy.LATEST_N, 3)
