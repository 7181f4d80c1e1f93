"""A message becomes a request of its lane, with its payload in the slot where the stages look for it, or is refused by field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from builders import make_arena, make_plan, no_barrier

from broker.intake import Intake, Payload
from broker.lanes import Lane
from broker.life import Client, Request
from schemas.arena import LaneArena
from schemas.layout_cache import LayoutCache
from schemas.status import Code, Flag, KeyPolicy, RequestError
from schemas.templates import RequestOptions, RequestTemplate, TensorForm
from schemas.tensors import DType, pack_bytes
from schemas.wire import ROUTE
from stages.links import SharedLink

LANES = """
[lane.any]
slots = 3
max_encoded_bytes = 1000
[lane.ticks]
model = "trading_mlp.onnx"
slots = 3
version = "7"
default_budget_us = 2000
[lane.fresh]
slots = 3
max_encoded_bytes = 1000
max_age_us = 1000
[lane.rows]
model = "trading_mlp.onnx"
slots = 3
max_rows = 4
idempotent = false
"""
MAX_BUDGET_US = 1_000_000
ROW = np.arange(67, dtype=np.float32).reshape(1, 67)
TICK = TensorForm("features", DType.FP32, (1, 67), 268, inline=True)


@dataclass
class Door:
    """The intake of a server with four lanes, and what lies behind it."""

    intake: Intake
    arenas: dict[str, LaneArena]
    cache: LayoutCache

    def request(
        self,
        model: str,
        tensors: Sequence[TensorForm],
        contents: Sequence[bytes],
        *,
        options: RequestOptions | None = None,
        now_ns: int = 0,
        **route: int,
    ) -> Request:
        """Have a message come in; *contents* of tensors that are not inline are its frames."""
        template = RequestTemplate(model, tensors, options or RequestOptions())
        inline = [content for tensor, content in zip(tensors, contents, strict=True) if tensor.inline]
        frames = [content for tensor, content in zip(tensors, contents, strict=True) if not tensor.inline]
        header = template.header(route.pop("request_id", 5), route.pop("budget_us", 0), inline, **route)
        layout = self.cache.read(header)
        unpacked = ROUTE.unpack_from(header, layout.route_at)
        return self.intake.request(Client(b""), layout, unpacked, header, frames, now_ns)

    def refused(self, model: str, tensors: Sequence[TensorForm], contents: Sequence[bytes], **more: object) -> tuple[Code, str]:
        """Return (code, field) with which a message is refused."""
        with pytest.raises(RequestError) as caught:
            self.request(model, tensors, contents, **more)  # type: ignore[arg-type]
        return caught.value.code, caught.value.field

    def fill(self, request: Request, slot: int) -> dict[str, np.ndarray]:
        """Copy a request into a slot and return what a stage reads there."""
        request.slot = slot
        self.intake.fill(request)
        arena = self.arenas[request.lane.plan.name]
        return SharedLink(arena, arena.plan.links[0], 0).read(slot)


@pytest.fixture
def door() -> Door:
    """A server's door."""
    plans = make_plan(LANES).lanes
    arenas = {plan.name: make_arena(plan) for plan in plans}
    lanes = {plan.name: Lane(plan, arenas[plan.name], no_barrier) for plan in plans}
    return Door(Intake(lanes, list(arenas.values()), max_budget_us=MAX_BUDGET_US), arenas, LayoutCache())


def form(name: str, dtype: DType, shape: tuple[int, ...], nbytes: int, *, inline: bool = False) -> TensorForm:
    """Return a tensor of a message."""
    return TensorForm(name, dtype, shape, nbytes, inline)


def test_a_request_is_what_its_route_says(door: Door) -> None:
    """Its deadline is the arrival and the budget."""
    options = RequestOptions(priority=3)
    request = door.request("ticks", [TICK], [ROW.tobytes()], options=options, now_ns=10, budget_us=4, born_us=8, key=9)

    assert (request.request_id, request.deadline_ns, request.arrived_ns) == (5, 4_010, 10)
    assert (request.born_us, request.key, request.priority, request.rows, request.payload_bytes) == (8, 9, 3, 1, 268)


def test_without_a_budget_the_lanes_own_holds(door: Door) -> None:
    """2000 us here."""
    assert door.request("ticks", [TICK], [ROW.tobytes()], now_ns=1).deadline_ns == 2_000_001


@pytest.mark.parametrize(("lane", "flags", "may_run_twice"), [("ticks", 4, True), ("ticks", 0, False), ("rows", 4, False)])
def test_a_request_may_run_twice_if_client_and_lane_say_so(door: Door, lane: str, flags: int, may_run_twice: bool) -> None:
    """Either can forbid it."""
    assert door.request(lane, [TICK], [ROW.tobytes()], flags=flags).idempotent == may_run_twice


@pytest.mark.parametrize("inline", [True, False])
def test_the_payload_is_in_the_slot_where_the_stage_looks(door: Door, inline: bool) -> None:
    """From the header or from a frame; the other slots are not touched."""
    request = door.request("ticks", [TICK._replace(inline=inline)], [ROW.tobytes()])

    assert door.fill(request, 1)["features"].tobytes() == ROW.tobytes()
    assert not door.arenas["ticks"].regions[0][[0, 2]].any()


def test_what_runs_again_finds_its_payload_in_place(door: Door) -> None:
    """The message is let go with the first copy, and nothing is written twice."""
    request = door.request("ticks", [TICK], [ROW.tobytes()])
    door.fill(request, 1)
    door.arenas["ticks"].regions[0][1, 0] = 99
    door.intake.fill(request)

    assert isinstance(request.payload, Payload)
    assert (request.payload.header, request.payload.frames) == (b"", ())
    assert door.arenas["ticks"].regions[0][1, 0] == 99


def test_many_rows_have_their_real_shape(door: Door) -> None:
    """Up to the lane's max_rows."""
    rows = np.random.default_rng(1).normal(size=(3, 67)).astype(np.float32)
    request = door.request("rows", [form("features", DType.FP32, (3, 67), rows.nbytes)], [rows.tobytes()])

    assert request.rows == 3
    assert door.fill(request, 0)["features"].tolist() == rows.tolist()


def test_a_lane_of_any_tensors_keeps_names_datatypes_and_shapes(door: Door) -> None:
    """One behind the other, each aligned for vector loads."""
    tensors = [form("a", DType.UINT8, (3,), 3), form("b", DType.INT16, (2, 1), 4, inline=True), form("c", DType.FP64, (), 8)]
    request = door.request("any", tensors, [b"\1\2\3", b"\4\0\5\0", np.float64(1.5).tobytes()])
    read = door.fill(request, 2)

    assert {name: (values.dtype.name, values.shape, values.tolist()) for name, values in read.items()} == {
        "a": ("uint8", (3,), [1, 2, 3]),
        "b": ("int16", (2, 1), [[4], [5]]),
        "c": ("float64", (), 1.5),
    }


def test_a_slot_does_not_show_the_tensors_of_the_one_before(door: Door) -> None:
    """Fewer tensors, other names, and then the first again."""
    two = ([form("a", DType.UINT8, (2,), 2), form("b", DType.UINT8, (1,), 1)], [b"\1\2", b"\3"])
    one = ([form("z", DType.UINT8, (1,), 1)], [b"\4"])

    assert list(door.fill(door.request("any", *two), 0)) == ["a", "b"]
    assert list(door.fill(door.request("any", *one), 0)) == ["z"]
    assert {name: values.tolist() for name, values in door.fill(door.request("any", *two), 0).items()} == {"a": [1, 2], "b": [3]}


@pytest.mark.parametrize("elements", [[], [b""], [b"one", b"", b"three"]])
def test_bytes_are_taken_in_their_binary_form(door: Door, elements: list[bytes]) -> None:
    """Any number of elements."""
    packed = pack_bytes(elements)
    request = door.request("any", [form("s", DType.BYTES, (len(elements),), len(packed))], [packed])

    assert door.fill(request, 0)["s"].tobytes() == packed


@pytest.mark.parametrize(
    ("model", "version", "code"),
    [("nobody", "", Code.MODEL_NOT_FOUND), ("ticks", "8", Code.VERSION_NOT_FOUND), ("any", "7", Code.VERSION_NOT_FOUND)],
)
def test_a_lane_that_is_not_there_is_refused(door: Door, model: str, version: str, code: Code) -> None:
    """And so is a version that it does not have; its own is taken."""
    options = RequestOptions(version=version)

    assert door.refused(model, [TICK], [ROW.tobytes()], options=options)[0] == code
    assert door.request("ticks", [TICK], [ROW.tobytes()], options=RequestOptions(version="7"))


@pytest.mark.parametrize(
    ("lane", "tensor", "code"),
    [
        ("ticks", form("other", DType.FP32, (1, 67), 268), Code.MISSING_INPUT),
        ("ticks", form("features", DType.FP64, (1, 67), 536), Code.BAD_DTYPE),
        ("ticks", form("features", DType.FP32, (1, 66), 264), Code.BAD_SHAPE),
        ("ticks", form("features", DType.FP32, (67,), 268), Code.BAD_SHAPE),
        ("ticks", form("features", DType.FP32, (2, 67), 536), Code.BAD_SHAPE),
        ("rows", form("features", DType.FP32, (5, 67), 1340), Code.TOO_LARGE),
        ("rows", form("features", DType.FP32, (0, 67), 0), Code.BAD_SHAPE),
        ("any", form("x", DType.UINT8, (1001,), 1001), Code.TOO_LARGE),
        ("any", form("x" * 33, DType.UINT8, (1,), 1), Code.BAD_NAME),
    ],
)
def test_a_tensor_that_the_lane_does_not_take_is_refused(door: Door, lane: str, tensor: TensorForm, code: Code) -> None:
    """Before anything is copied."""
    assert door.refused(lane, [tensor], [bytes(tensor.nbytes)])[0] == code


def test_a_tensor_too_many_is_refused_by_name(door: Door) -> None:
    """Next to all that the lane takes."""
    extra = form("extra", DType.FP32, (1, 1), 4, inline=True)

    assert door.refused("ticks", [TICK, extra], [ROW.tobytes(), bytes(4)]) == (Code.BAD_NAME, "extra")


@pytest.mark.parametrize("count", [0, 9])
def test_a_lane_of_any_tensors_takes_one_to_eight(door: Door, count: int) -> None:
    """The slot describes eight."""
    tensors = [form(f"x{index}", DType.UINT8, (1,), 1, inline=True) for index in range(count)]

    assert door.refused("any", tensors, [b"x"] * count) == (Code.BAD_TENSOR, "inputs")


@pytest.mark.parametrize("size", [0, 267, 269])
def test_a_frame_of_another_size_than_its_tensor_is_refused(door: Door, size: int) -> None:
    """Whatever the header said."""
    assert door.refused("ticks", [TICK._replace(inline=False)], [bytes(size)]) == (Code.SIZE_MISMATCH, "features")


@pytest.mark.parametrize(("packed", "code"), [(b"\5\0\0\0abc", Code.BAD_TENSOR), (pack_bytes([b"a"]) + b"x", Code.SIZE_MISMATCH)])
def test_bytes_that_are_not_in_the_binary_form_are_refused(door: Door, packed: bytes, code: Code) -> None:
    """Cut off, or with something behind."""
    assert door.refused("any", [form("s", DType.BYTES, (1,), len(packed))], [packed]) == (code, "s")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("inline", [True, False])
def test_nan_is_refused_where_the_request_asks_for_it(door: Door, bad: float, inline: bool) -> None:
    """Each message is looked at, not only the first of its layout."""
    tensor, row = TICK._replace(inline=inline), ROW.copy()
    door.request("ticks", [tensor], [row.tobytes()], options=RequestOptions(finite=True))
    row[0, 66] = bad

    assert door.refused("ticks", [tensor], [row.tobytes()], options=RequestOptions(finite=True)) == (Code.NOT_FINITE, "features")
    assert door.request("ticks", [tensor], [row.tobytes()])


@pytest.mark.parametrize(
    ("route", "code", "field"),
    [
        ({"budget_us": MAX_BUDGET_US + 1}, Code.BAD_PARAM, "budget_us"),
        ({"flags": int(Flag.STREAM)}, Code.NOT_SUPPORTED, "flags"),
        ({"flags": int(Flag.REPLY_IN_LEASE)}, Code.NOT_SUPPORTED, "flags"),
    ],
)
def test_what_this_server_does_not_do_is_refused(door: Door, route: dict[str, int], code: Code, field: str) -> None:
    """By the route's field."""
    assert door.refused("ticks", [TICK], [ROW.tobytes()], **route) == (code, field)


def test_an_output_that_the_lane_does_not_give_is_refused(door: Door) -> None:
    """A lane of any tensors gives what it gets."""
    wanted = RequestOptions(outputs=("p_up", "nothing"))

    assert door.refused("ticks", [TICK], [ROW.tobytes()], options=wanted) == (Code.BAD_NAME, "outputs")
    with pytest.raises(RequestError, match="outputs: expected some of log_vol, p_up, got nothing"):
        door.request("ticks", [TICK], [ROW.tobytes()], options=wanted)
    assert door.request("any", [TICK], [ROW.tobytes()], options=wanted)


BYTE = TensorForm("x", DType.UINT8, (1,), 1, inline=True)


def test_a_birth_by_another_clock_is_refused_where_age_matters(door: Door) -> None:
    """By the wall clock a request would never be old; a turn's worth of future is none, and 0 says nothing."""
    now_ns = 5_000_000_000
    for born_us in (0, 4_000_000, 5_900_000):
        assert door.request("fresh", [BYTE], [b"1"], now_ns=now_ns, born_us=born_us).born_us == born_us
    with pytest.raises(RequestError, match="born_us: expected 0, or a time of this host's monotonic clock, now 5000000"):
        door.request("fresh", [BYTE], [b"1"], now_ns=now_ns, born_us=1_700_000_000_000_000)
    assert door.request("any", [BYTE], [b"1"], now_ns=now_ns, born_us=1 << 63).born_us == 1 << 63


def test_a_key_policy_is_taken_over_and_needs_a_key(door: Door) -> None:
    """LatestOnly is the latest one."""
    only = RequestOptions(key_policy=KeyPolicy.LATEST_ONLY)
    request = door.request("any", [BYTE], [b"1"], options=only, key=4)
    assert (request.policy, request.latest_n, request.key) == (KeyPolicy.LATEST_ONLY, 1, 4)

    with pytest.raises(RequestError, match="key: expected not 0 with LATEST_ONLY, got 0"):
        door.request("any", [BYTE], [b"1"], options=only)


def test_more_latest_than_the_backlog_holds_are_refused(door: Door) -> None:
    """They could never wait."""
    with pytest.raises(RequestError, match=r"latest_n: expected at most 256 \(lane.any.backlog\), got 257"):
        door.request("any", [BYTE], [b"1"], options=RequestOptions(key_policy=KeyPolicy.LATEST_N, latest_n=257), key=4)
