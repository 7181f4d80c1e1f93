"""The stored bytes of each kind of message mean what they meant when they were stored, to our reader and to foreign ones."""

from __future__ import annotations

import pytest
from fields_text import Checker, fields_text
from golden_messages import BODIES, IDS, PARAMS, SCORES, TICK, TIMING, messages, stored

from schemas import layout as reading
from schemas.fb.Body import Body
from schemas.fb.Infer import Infer
from schemas.fb.InferOut import InferOut
from schemas.fb.Message import Message
from schemas.layout import Layout, read_layout
from schemas.messages import Failure, read_message
from schemas.status import Code, Flag, KeyPolicy, Kind, Place
from schemas.tensors import DType

STORED = stored()


def test_every_message_has_its_stored_bytes() -> None:
    """A new kind needs a file (run golden_messages.py)."""
    assert set(STORED) == set(messages())


@pytest.mark.parametrize("name", STORED)
def test_the_writers_still_make_these_bytes(name: str) -> None:
    """The layout of what we send changes only on purpose."""
    assert messages()[name] == STORED[name]


@pytest.mark.parametrize("name", BODIES)
def test_a_stored_rare_message_is_read_as_it_was_written(name: str) -> None:
    """Route and body both."""
    route, body = read_message(STORED[name])

    assert body == BODIES[name]
    assert (route.request_id, route.born_us, route.key) == IDS
    assert bool(route.flags & Flag.FINAL) == (route.kind >= 16)


def test_the_stored_error_is_read_as_it_was_written() -> None:
    """With its code, texts and waiting time."""
    route, body = read_message(STORED["error"])

    assert route.kind == Kind.ERROR
    assert body == Failure(Code.BUSY, "backlog: expected at most 256, got 257", 5_000, "broker", "backlog")


def test_the_stored_tick_is_read_as_it_was_written() -> None:
    """Route and inline bytes are found by position."""
    header = STORED["tick_request"]
    layout = read_layout(header)
    tensor = layout.tensors[0]

    assert reading.read_route(header, layout)[:4] == (7, 5_000, 1_234_567, 42)
    assert (layout.model, tensor.name, tensor.dtype, tensor.shape) == ("ticks", "x", DType.FP32, (1, 20))
    assert header[tensor.inline_at : tensor.inline_at + tensor.nbytes] == TICK


def test_the_stored_full_request_is_read_as_it_was_written() -> None:
    """Every field of a request that our clients can set."""
    header = STORED["full_request"]
    layout = read_layout(header)

    assert (layout.model, layout.version, layout.outputs, layout.params) == ("qc", "2", ("verdict", "boxes"), PARAMS)
    assert (layout.key_policy, layout.latest_n, layout.finite) == (KeyPolicy.LATEST_N, 3, True)
    assert reading.read_client_request_id(header, layout) == "part 0815"
    assert reading.read_checksum(header, layout) == 0xDEADBEEF
    assert [(tensor.name, tensor.place, tensor.frame) for tensor in layout.tensors] == [
        ("image", Place.FRAME, 0),
        ("mask", Place.FRAME, 1),
        ("gain", Place.INLINE, -1),
        ("label", Place.INLINE, -1),
    ]
    assert layout.tensors[0].content_type == "image/png"
    assert reading.read_route(header, layout).priority == 1
    assert reading.read_route(header, layout).payload_frames == layout.frames == 2


def test_the_stored_reply_is_read_as_it_was_written() -> None:
    """With the times of each stage."""
    header = STORED["tick_reply"]
    layout = read_layout(header)
    output = layout.tensors[0]

    assert reading.read_timing(header, layout) == TIMING
    assert (reading.read_retries(header, layout), reading.read_backlog_us(header, layout)) == (1, 250)
    assert header[output.inline_at : output.inline_at + output.nbytes] == SCORES


def test_the_generated_accessors_read_the_stored_tick() -> None:
    """A foreign Python client needs nothing of ours."""
    message = Message.GetRootAs(STORED["tick_request"])
    infer = Infer()
    infer.Init(message.Body().Bytes, message.Body().Pos)

    assert (message.Route().RequestId(), message.Route().BudgetUs(), message.Route().Kind()) == (7, 5_000, Kind.INFER_REQUEST)
    assert message.BodyType() == Body.Infer
    assert infer.Model() == b"ticks"
    assert (infer.Inputs(0).Name(), infer.Inputs(0).Shape(1), infer.Inputs(0).Nbytes()) == (b"x", 20, 80)
    assert bytes(infer.Inputs(0).InlineData(index) for index in range(infer.Inputs(0).InlineDataLength())) == TICK


def test_the_generated_accessors_read_the_stored_reply() -> None:
    """Including the fields that the template patches."""
    message = Message.GetRootAs(STORED["tick_reply"])
    reply = InferOut()
    reply.Init(message.Body().Bytes, message.Body().Pos)

    assert (reply.Model(), reply.Version(), reply.Retries(), reply.BacklogUs()) == (b"ticks", b"1", 1, 250)
    rows = [reply.Timing(index) for index in range(reply.TimingLength())]
    assert [(row.QueueUs(), row.RunUs(), row.Batch()) for row in rows] == TIMING


def test_inline_bytes_are_aligned_for_any_datatype() -> None:
    """The schema forces 16, and a C++ reader may rely on it."""
    positions = [
        tensor.inline_at
        for header in STORED.values()
        if isinstance(body := read_message(header)[1], Layout)
        for tensor in body.tensors
        if tensor.place == Place.INLINE
    ]

    assert positions
    assert all(position % 16 == 0 for position in positions)


def test_cpp_reads_the_same_fields(cpp_fields: Checker) -> None:
    """Generated C++ code and its verifier agree with ours on every stored message."""
    assert cpp_fields(list(STORED.values())) == [fields_text(header) for header in STORED.values()]
