"""A request that names frames: what stays in place, what is copied and checked, what stages read, where outputs go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from builders import make_arena, make_plan, no_barrier
from lease_rig import FORM, close, lend, make_pool, make_regions, ref, write

from broker import life
from broker.intake import Intake, Payload
from broker.lanes import Lane
from broker.leases import Grant, LeasePool
from broker.life import Client, Request
from broker.replies import LaneReplies
from schemas.arena import LaneArena
from schemas.checksum import payload_checksum
from schemas.layout import read_layout, read_route
from schemas.layout_cache import LayoutCache
from schemas.lease_regions import LeaseRegions
from schemas.plan import LanePlan
from schemas.status import Code, Flag, Place, RequestError
from schemas.templates import RequestOptions, RequestTemplate, TensorForm
from schemas.tensors import DType, pack_bytes
from schemas.wire import ROUTE
from schemas.wire_tensors import Lease
from stages.lease_links import LeasedInput

LANES = """
[lane.any]
slots = 3
max_encoded_bytes = 64
[lane.any.postprocess]
use = "stage_functions:copy"
outputs = [{ name = "y", dtype = "FP32", shape = [4] }]
[lane.echo]
slots = 3
max_encoded_bytes = 1000
[lane.ticks]
model = "trading_mlp.onnx"
slots = 3
[lane.rows]
model = "trading_mlp.onnx"
slots = 3
max_rows = 4
"""
CLIENT = Client(b"mine")
ROWS = np.arange(134, dtype=np.float32).reshape(2, 67)


@dataclass
class Rig:
    """The intake of a server that lends leases, and what lies behind it."""

    plans: dict[str, LanePlan]
    arenas: dict[str, LaneArena]
    lanes: dict[str, Lane]
    intake: Intake
    pool: LeasePool
    regions: LeaseRegions
    grant: Grant
    cache: LayoutCache

    def request(self, model: str, *tensors: TensorForm, inline: tuple[bytes, ...] = (), **more: Any) -> Request:
        """Have a request come in."""
        flags = more.pop("flags", Flag.IDEMPOTENT)
        client = more.pop("client", CLIENT)
        header = RequestTemplate(model, tensors, RequestOptions(**more)).header(5, 0, inline, flags=flags)
        layout = self.cache.read(header)
        return self.intake.request(client, layout, ROUTE.unpack_from(header, layout.route_at), header, (), 0)

    def refused(self, model: str, *tensors: TensorForm, **more: Any) -> tuple[Code, str]:
        """Return (code, field) of a refusal."""
        with pytest.raises(RequestError) as caught:
            self.request(model, *tensors, **more)
        return caught.value.code, caught.value.field

    def link(self, model: str) -> LeasedInput:
        """Return the input as a stage reads it."""
        return LeasedInput(self.arenas[model], self.plans[model].links[0], self.regions)

    def fill(self, request: Request, slot: int = 1) -> None:
        """Put a request into a slot."""
        request.slot = slot
        self.intake.fill(request)


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A server with four lanes and two leases, one of them the client's."""
    plans = {plan.name: plan for plan in make_plan(LANES).lanes}
    arenas = {name: make_arena(plan) for name, plan in plans.items()}
    lanes = {name: Lane(plan, arenas[name], no_barrier) for name, plan in plans.items()}
    regions, descriptors = make_regions()
    pool = make_pool()
    intake = Intake(lanes, list(arenas.values()), max_budget_us=1000, leases=pool, regions=regions)
    yield Rig(plans, arenas, lanes, intake, pool, regions, lend(pool, CLIENT), LayoutCache())
    close(descriptors)


def leased(rig: Rig, name: str, dtype: DType, shape: tuple[int, ...], nbytes: int, frame: int = 0) -> TensorForm:
    """Return a tensor in a frame."""
    return TensorForm(name, dtype, shape, nbytes, lease=ref(rig.grant, frame, nbytes))


@pytest.mark.parametrize(("lane", "rows"), [("ticks", 1), ("rows", 1), ("rows", 2)])
def test_a_stage_reads_a_frame_where_it_lies(rig: Rig, lane: str, rows: int) -> None:
    """What is written later is what it reads: nothing was copied. A slot in the ordinary way beside it is read as ever."""
    values = ROWS[:rows]
    request = rig.request(lane, leased(rig, "features", DType.FP32, values.shape, values.nbytes, frame=1))
    rig.fill(request)
    plain = TensorForm("features", DType.FP32, values.shape, values.nbytes, inline=True)
    rig.fill(rig.request(lane, plain, inline=((values + 1).tobytes(),)), slot=2)
    write(rig.regions, rig.grant, values.tobytes(), frame=1)

    link = rig.link(lane)
    assert np.array_equal(link.read(1)["features"], values)
    assert np.array_equal(link.read(2)["features"], values + 1)
    batch = np.empty((2 * rows, 67), np.float32)
    link.gather("features", [2, 1], batch)
    assert np.array_equal(batch, np.concatenate([values + 1, values]))
    assert (request.rows, request.payload_bytes) == (rows, 0)
    assert [held.frame for held in request.leases] == [1]


def test_a_slot_forgets_the_frame_of_its_last_request(rig: Rig) -> None:
    """The next request in the same slot is read from the slot, in a lane whose inputs always lie alike too."""
    values = ROWS[:1]
    rig.fill(rig.request("ticks", leased(rig, "features", DType.FP32, (1, 67), 268)))
    rig.fill(rig.request("ticks", TensorForm("features", DType.FP32, (1, 67), 268, inline=True), inline=(values.tobytes(),)))

    assert np.array_equal(rig.link("ticks").read(1)["features"], values)


def test_a_frame_needs_no_room_in_the_slot(rig: Rig) -> None:
    """4,000 bytes for a lane of 64; an ordinary tensor beside it lies in the slot."""
    small = TensorForm("b", DType.UINT8, (3,), 3, inline=True)
    request = rig.request("any", leased(rig, "a", DType.UINT8, (40, 100), 4000), small, inline=(b"xyz",))
    write(rig.regions, rig.grant, bytes(range(250)))
    rig.fill(request)

    found = rig.link("any").read(1)
    assert found["a"].shape == (40, 100)
    assert found["a"].reshape(-1)[:250].tobytes() == bytes(range(250))
    assert found["b"].tobytes() == b"xyz"
    assert request.payload_bytes == 3


def test_stages_cannot_write_into_a_frame() -> None:
    """Their mapping is read-only; what the broker writes into its own is seen there."""
    writable, descriptors = make_regions(1)
    reading = LeaseRegions(descriptors, FORM, writable=False)
    writable.region(0)[4] = 7

    assert reading.region(0)[4] == 7
    with pytest.raises(ValueError, match="read-only"):
        reading.region(0)[0] = 1
    close(descriptors)


@pytest.mark.parametrize(
    ("dtype", "shape", "content"),
    [(DType.BYTES, (2,), pack_bytes([b"one", b"two"])), (DType.ENCODED, (1,), b"no picture")],
)
def test_what_tells_its_own_sizes_is_copied_when_it_comes(rig: Rig, dtype: DType, shape: tuple[int, ...], content: bytes) -> None:
    """What is written later changes nothing."""
    write(rig.regions, rig.grant, content)
    request = rig.request("any", leased(rig, "a", dtype, shape, len(content)))
    write(rig.regions, rig.grant, b"\xff" * len(content))
    rig.fill(request)

    assert rig.link("any").read(1)["a"].tobytes() == content
    assert request.payload_bytes == len(content)
    assert request.leases


def test_bytes_that_are_cut_off_are_refused(rig: Rig) -> None:
    """Judged by the copy."""
    write(rig.regions, rig.grant, b"\xff\0\0\0ab")

    assert rig.refused("any", leased(rig, "a", DType.BYTES, (1,), 6)) == (Code.BAD_TENSOR, "a")


def test_what_has_a_checksum_is_copied_before_it_is_compared(rig: Rig) -> None:
    """Inline tensors first, then those in leases in their order."""
    write(rig.regions, rig.grant, b"first")
    write(rig.regions, rig.grant, b"second", frame=1)
    tensors = (
        leased(rig, "a", DType.UINT8, (5,), 5),
        TensorForm("b", DType.UINT8, (2,), 2, inline=True),
        leased(rig, "c", DType.UINT8, (6,), 6, frame=1),
    )
    checksum = payload_checksum([b"in", b"first", b"second"])
    request = rig.request("echo", *tensors, inline=(b"in",), checksum=checksum)
    write(rig.regions, rig.grant, b"later")
    rig.fill(request)

    assert {name: values.tobytes() for name, values in rig.link("echo").read(1).items()} == {
        "a": b"first",
        "b": b"in",
        "c": b"second",
    }
    assert rig.refused("echo", *tensors, inline=(b"in",), checksum=checksum) == (Code.BAD_CHECKSUM, "checksum")


def test_nan_is_looked_for_in_a_copy(rig: Rig) -> None:
    """Only of floats, and only where it was asked."""
    tensor = leased(rig, "features", DType.FP32, (1, 67), 268)
    write(rig.regions, rig.grant, ROWS[:1].tobytes())
    assert rig.request("ticks", tensor, finite=True).payload_bytes == 268
    write(rig.regions, rig.grant, b"\xff" * 4)

    assert rig.refused("ticks", tensor, finite=True) == (Code.NOT_FINITE, "features")
    assert rig.request("ticks", tensor).payload_bytes == 0
    assert rig.request("any", leased(rig, "a", DType.UINT8, (4,), 4), finite=True).payload_bytes == 0


def test_a_lane_that_answers_with_its_input_gets_a_copy(rig: Rig) -> None:
    """And it must fit into the slot."""
    write(rig.regions, rig.grant, b"echo")

    assert rig.request("echo", leased(rig, "a", DType.UINT8, (4,), 4)).payload_bytes == 4
    assert rig.refused("echo", leased(rig, "a", DType.UINT8, (1001,), 1001))[0] == Code.TOO_LARGE


def test_a_frame_is_named_once(rig: Rig) -> None:
    """By one request: not as two inputs, not as input and output."""
    tensor = leased(rig, "a", DType.UINT8, (4,), 4)
    twice = (tensor, tensor._replace(name="b"))
    assert rig.refused("any", *twice) == (Code.BAD_LEASE, "b")

    both = {"outputs": ("y",), "output_leases": (ref(rig.grant),), "flags": Flag.IDEMPOTENT | Flag.REPLY_IN_LEASE}
    assert rig.refused("any", tensor, **both) == (Code.BAD_LEASE, "y")


@pytest.mark.parametrize(("flags", "with_lease"), [(Flag.REPLY_IN_LEASE, False), (Flag.IDEMPOTENT, True)])
def test_the_flag_says_that_an_output_is_wanted_in_a_lease(rig: Rig, flags: Flag, with_lease: bool) -> None:
    """Neither without the other."""
    outputs = {"outputs": ("y",), "output_leases": (ref(rig.grant, 1),) if with_lease else ()}

    assert rig.refused("any", leased(rig, "a", DType.UINT8, (4,), 4), flags=flags, **outputs) == (Code.BAD_LEASE, "flags")


def test_each_request_of_a_layout_is_checked_for_its_client(rig: Rig) -> None:
    """What is remembered of a layout is not whose lease it names."""
    tensor = leased(rig, "a", DType.UINT8, (4,), 4)
    rig.request("any", tensor)

    assert rig.refused("any", tensor, client=Client(b"other")) == (Code.BAD_LEASE, "a")
    rig.pool.end(rig.grant)
    assert rig.refused("any", tensor) == (Code.BAD_LEASE, "a")


def answered(rig: Rig, room: int, lane: str = "any") -> tuple[bytes, list[bytes], Request]:
    """Return header, frames and request of an answer whose output was wanted in a frame with *room* bytes."""
    request = rig.request(
        lane,
        leased(rig, "a", DType.UINT8, (4,), 4),
        outputs=("y",),
        output_leases=(Lease(rig.grant.region, rig.grant.generation, 2, room),),
        flags=Flag.IDEMPOTENT | Flag.REPLY_IN_LEASE,
    )
    rig.pool.hold(request)
    rig.fill(request)
    plan, arena = rig.plans[lane], rig.arenas[lane]
    final = plan.links[plan.final_link]
    arena.regions[final.region][request.slot, :16].view(np.float32)[:] = (1, 2, 3, 4)
    request.state = life.DONE
    assert isinstance(request.payload, Payload)
    replies = LaneReplies(rig.lanes[lane], arena, rig.pool, rig.regions)
    ((header, frames),) = replies.results([request])
    return header, list(frames), request


def test_an_output_goes_into_its_frame(rig: Rig) -> None:
    """The reply says where it is and how large, and that all frames of the request are free."""
    header, frames, request = answered(rig, room=FORM.frame_bytes)

    layout = read_layout(header)
    (tensor,) = layout.tensors
    assert (tensor.place, tensor.lease, frames) == (Place.LEASE, ref(rig.grant, 2, 16), [])
    assert read_route(header, layout).flags == Flag.FINAL | Flag.REPLY_IN_LEASE | Flag.RELEASED
    assert rig.regions.region(rig.grant.region)[2 * FORM.stride :][:16].view(np.float32).tolist() == [1, 2, 3, 4]
    assert (request.leases, rig.grant.uses.total()) == ((), 0)


def test_an_output_that_does_not_fit_comes_in_the_reply(rig: Rig) -> None:
    """The frame is not touched."""
    header, _, _ = answered(rig, room=15)

    layout = read_layout(header)
    assert layout.tensors[0].place == Place.INLINE
    assert read_route(header, layout).flags == Flag.FINAL | Flag.RELEASED
    assert not rig.regions.region(rig.grant.region)[2 * FORM.stride :].any()


@pytest.mark.parametrize(
    "place", [{"region": 2}, {"region": 1 << 23}, {"region": 2**32 - 1}, {"frame": 3}, {"frame": 2**32 - 1}], ids=str
)
def test_a_frame_that_cannot_be_is_refused_before_its_place_is_computed(rig: Rig, place: dict[str, int]) -> None:
    """The numbers are the peer's: no place in any region may come of them, and no fault of ours."""
    tensor = leased(rig, "a", DType.UINT8, (4,), 4)
    assert tensor.lease is not None
    wrong = tensor.lease._replace(**place)

    assert rig.refused("any", tensor._replace(lease=wrong)) == (Code.BAD_LEASE, "a")
    outputs = {"outputs": ("y",), "output_leases": (wrong,), "flags": Flag.IDEMPOTENT | Flag.REPLY_IN_LEASE}
    assert rig.refused("any", tensor, **outputs) == (Code.BAD_LEASE, "y")
