"""The accelerator in C does what the Python beside it does, and reads and writes nothing outside of what it was given.

Its sending side is tested with the outbox. Skipped where it was not built.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zmq
from builders import make_arena, make_plan, no_barrier
from hypothesis import given
from hypothesis import strategies as st

from broker import accelerator
from broker.accelerator import HAS_DELIMITER, HAS_MORE, IS_UNKNOWN
from broker.intake import Intake
from broker.lanes import Lane
from broker.life import Client, Request
from broker.replies import LaneReplies
from schemas.arena import LaneArena
from schemas.layout_cache import LayoutCache, plain_decider
from schemas.templates import RequestTemplate, TensorForm
from schemas.tensors import DType
from schemas.wire import ROUTE

HOT, WHY_NOT = accelerator.load()
needs_accelerator = pytest.mark.skipif(HOT is None, reason=f"no accelerator: {WHY_NOT}")
WAYS = [pytest.param(None, id="plain"), pytest.param(HOT, id="accelerated", marks=needs_accelerator)]
U64 = st.integers(0, 2**64 - 1)
NS = st.integers(0, 2**62)
TICK = TensorForm("features", DType.FP32, (1, 67), 268, inline=True)


def test_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an environment variable, and the reason says so."""
    monkeypatch.setenv("SLOTLINE_ACCELERATOR", "off")

    assert accelerator.load() == (None, "SLOTLINE_ACCELERATOR=off")


# --- receiving -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def sockets() -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]:
    """A ROUTER and the DEALER named b"peer" behind it, in one process."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    dealer.set(zmq.IDENTITY, b"peer")
    router.bind("inproc://door")
    dealer.connect("inproc://door")
    yield router, dealer
    context.destroy(linger=0)


@pytest.mark.parametrize("hot", WAYS)
def test_messages_are_taken_until_one_must_be_read_on(
    hot: ModuleType | None, sockets: tuple[zmq.Socket[bytes], zmq.Socket[bytes]]
) -> None:
    """With and without an empty first frame; the frames behind a header stay in the socket."""
    router, dealer = sockets
    peer = Client(b"peer")
    receive = accelerator.receiver(hot, router)
    for parts in ([b"one"], [b"", b"two"], [b""], [b"three", b"frame"], [b"four"], [b"", b"five", b"frame"], [b"six"]):
        dealer.send_multipart(parts)

    assert receive({b"peer": peer}, 2) == [(peer, b"one", 0), (peer, b"two", HAS_DELIMITER)]
    assert receive({b"peer": peer}, 9) == [(peer, b"", 0), (peer, b"three", HAS_MORE)]
    assert router.recv() == b"frame"
    assert receive({b"peer": peer}, 9) == [(peer, b"four", 0), (peer, b"five", HAS_DELIMITER | HAS_MORE)]
    assert router.recv() == b"frame"
    assert receive({}, 9) == [(b"peer", b"", IS_UNKNOWN | HAS_MORE)]
    assert router.recv() == b"six"
    assert receive({b"peer": peer}, 9) == []


# --- layouts ---------------------------------------------------------------------------------------------------------------


@needs_accelerator
@given(header=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), min_size=4, max_size=12))
def test_deciding_bytes_are_those_of_the_slices(header: bytes, cuts: list[int]) -> None:
    """Any slices inside of any header."""
    ends = sorted(min(cut, len(header)) for cut in cuts[: len(cuts) // 2 * 2])
    slices = [slice(*pair) for pair in zip(ends[::2], ends[1::2], strict=True)]

    assert accelerator.decider(HOT)(slices)(header) == plain_decider(slices)(header)


@needs_accelerator
@pytest.mark.parametrize("wrong", [slice(0, 11), slice(11, 12), slice(5, 4), slice(2**32 - 1, 2**32 - 1)])
def test_a_slice_outside_of_the_header_is_refused(wrong: slice) -> None:
    """Nothing beyond its end is read."""
    with pytest.raises(ValueError, match="outside"):
        accelerator.decider(HOT)([slice(0, 1), wrong])(b"ten bytes.")


# --- replies ---------------------------------------------------------------------------------------------------------------


@functools.cache
def desk(way: str) -> tuple[LaneReplies, LaneArena, Request]:
    """Return the replies of a tick lane made one way, its arena, and a request in slot 2."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("SLOTLINE_ACCELERATOR", way)
        return _desk()


def _desk() -> tuple[LaneReplies, LaneArena, Request]:
    plan = make_plan('[lane.ticks]\nmodel = "trading_mlp.onnx"\nslots = 4\n').lanes[0]
    arena = make_arena(plan)
    lane = Lane(plan, arena, no_barrier)
    header = RequestTemplate("ticks", [TICK]).header(1, 0, [bytes(268)])
    layout = LayoutCache().read(header)
    intake = Intake({"ticks": lane}, [arena], max_budget_us=1)
    request = intake.request(Client(b""), layout, ROUTE.unpack_from(header, layout.route_at), header, (), 0)
    return LaneReplies(lane, arena), arena, request


@needs_accelerator
@given(
    ids=st.tuples(U64, U64, U64), times=st.lists(st.integers(0, 2**62), min_size=4, max_size=4), batch=st.integers(0, 2**32 - 1)
)
def test_replies_are_equal_bit_for_bit(ids: tuple[int, int, int], times: list[int], batch: int) -> None:
    """Any ids and times, those that do not fit the wire's fields too; outputs and retries in their places."""
    made = []
    arrived, dispatched, began, done = sorted(times)
    for way in ("off", "on"):
        replies, arena, request = desk(way)
        request.slot = 2
        arena.stamps[2, 2] = (began, done, batch)
        arena.regions[-1][:] = np.arange(arena.regions[-1].size, dtype=np.uint64).reshape(arena.regions[-1].shape) % 251
        request.request_id, request.born_us, request.key = ids
        request.arrived_ns, request.dispatched_ns, request.retries, request.marks = arrived, dispatched, batch % 400, 1
        made.append(replies.results([request]))

    assert made[0] == made[1]


@needs_accelerator
@pytest.mark.parametrize("slot", [4, 2**20, 2**63])
def test_a_slot_that_is_not_there_is_refused(slot: int) -> None:
    """Nothing behind the arena is read."""
    replies, _, request = desk("on")
    request.slot = slot

    with pytest.raises(ValueError, match="is not there"):
        replies.results([request])


def form(**changes: Any) -> tuple[Any, ...]:
    """Return a form of 100 bytes with one stage and one copy, with *changes*."""
    fine = {"template": bytes(100), "rows": bytes(64), "stamps": bytes(48), "copies": np.array([96, 60, 4], "<u4").tobytes()}
    fine |= {"timed": b"\1", "stride": 64, "stages": 1, "route": 0, "timing": 56, "retries": 68, "backlog": 72}
    return tuple((fine | changes).values())


@needs_accelerator
def test_a_form_is_checked_before_it_is_used() -> None:
    """No offset leads out of the header, the row or the stamps."""
    assert HOT is not None
    request = SimpleNamespace(slot=0, request_id=1, born_us=0, key=0, dispatched_ns=0, arrived_ns=0, retries=0, marks=0)
    assert len(HOT.replies(form(), [request])[0]) == 100
    wrong: list[dict[str, Any]] = [
        {"route": 45}, {"route": -1}, {"timing": 89}, {"timing": -1}, {"retries": 100}, {"backlog": 97}, {"stages": -1},
        {"stages": 65}, {"timed": b""}, {"timed": b"\1\1"}, {"stride": -1}, {"stride": 63},
        {"copies": np.array([97, 60, 4], "<u4").tobytes()}, {"copies": np.array([96, 61, 4], "<u4").tobytes()},
        {"copies": np.array([0, 0, 2**32 - 1], "<u4").tobytes()}, {"rows": bytes(63)}, {"stamps": bytes(23)},
    ]  # fmt: skip
    for changes in wrong:
        with pytest.raises(ValueError, match=r"fits nowhere|is not there"):
            HOT.replies(form(**changes), [request])
    with pytest.raises(AttributeError):
        HOT.replies(form(), [object()])


@needs_accelerator
def test_wrong_arguments_are_type_errors() -> None:
    """A mistake of ours is an exception, not a crash."""
    assert HOT is not None
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("receive", (0, [], 1)), ("receive", (0,)), ("send", (0, (), 0)), ("send", (1, [(b"", b"")], 0)), ("send", (1, [b""], 0)),
        ("send", (1, [("", b"", True)], 0)), ("join", (b"", "")), ("join", (b"",)), ("replies", ((), ())),
        ("replies", ((1,), [])),
    ]  # fmt: skip
    for name, arguments in calls:
        with pytest.raises(TypeError):
            getattr(HOT, name)(*arguments)
    with pytest.raises(OSError, match="is not loaded"):
        HOT.link("/no/such/libzmq.so")
