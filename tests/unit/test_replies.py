"""A reply is the slot's outputs, small ones in the header and large ones in frames, with the times that the stages left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from builders import DEMO, make_arena, make_plan, make_request, no_barrier

from broker.intake import Intake, Payload
from broker.lanes import Lane
from broker.life import Client, Request
from broker.replies import MAX_TEMPLATES, LaneReplies
from schemas.arena import LaneArena
from schemas.layout import read_backlog_us, read_layout, read_retries, read_route, read_timing
from schemas.layout_cache import LayoutCache
from schemas.status import Flag, Kind, Place
from schemas.templates import RequestOptions, RequestTemplate, TensorForm
from schemas.tensors import DType
from schemas.wire import MAX_INLINE_BYTES, ROUTE
from stages.links import SharedLink

TICKS = '[lane.ticks]\nmodel = "trading_mlp.onnx"\nslots = 4\n'
ANY = "[lane.any]\nslots = 4\nmax_encoded_bytes = 100_000\n"
QC = (DEMO / "demo.toml").read_text().partition("[lane.ticks]")[0]
TICK = [TensorForm("features", DType.FP32, (1, 67), 268, inline=True)]
PICTURE = [TensorForm("image", DType.ENCODED, (1,), 3, inline=True)]


@dataclass
class Desk:
    """The replies of one lane, and what lies behind them."""

    replies: LaneReplies
    lane: Lane
    arena: LaneArena
    intake: Intake
    cache: LayoutCache

    def request(self, tensors: list[TensorForm], contents: list[bytes], *outputs: str, slot: int = 1) -> Request:
        """Return a request that was answered in *slot*."""
        template = RequestTemplate(self.lane.plan.name, tensors, RequestOptions(outputs=outputs))
        inline = [content for tensor, content in zip(tensors, contents, strict=True) if tensor.inline]
        frames = [content for tensor, content in zip(tensors, contents, strict=True) if not tensor.inline]
        header = template.header(5, 0, inline, born_us=6, key=7)
        layout = self.cache.read(header)
        made = self.intake.request(Client(b""), layout, ROUTE.unpack_from(header, layout.route_at), header, frames, 1_000)
        made.slot, made.dispatched_ns = slot, 5_000
        self.intake.fill(made)
        return made

    @property
    def output(self) -> SharedLink:
        """The link that replies are made of."""
        final = self.lane.plan.final_link
        return SharedLink(self.arena, self.lane.plan.links[final], final)


def make_desk(text: str) -> Desk:
    """Return the replies of the one lane of *text*."""
    plan = make_plan(text).lanes[0]
    arena = make_arena(plan)
    lane = Lane(plan, arena, no_barrier)
    return Desk(LaneReplies(lane, arena), lane, arena, Intake({plan.name: lane}, [arena], max_budget_us=1), LayoutCache())


def any_form(size: int) -> TensorForm:
    """Return a tensor of *size* bytes, inline if it may be."""
    return TensorForm(f"x{size}", DType.UINT8, (size,), size, size <= MAX_INLINE_BYTES)


def outputs_of(header: bytes, frames: list[bytes]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return (datatype, shape, bytes) of each output of a reply by name."""
    found = {}
    for tensor in read_layout(header).tensors:
        content = header[tensor.inline_at :][: tensor.nbytes] if tensor.place == Place.INLINE else frames[tensor.frame]
        found[tensor.name] = (tensor.dtype.name, tensor.shape, content)
    return found


def test_a_result_carries_the_models_outputs() -> None:
    """By name, datatype and shape."""
    desk = make_desk(TICKS)
    request = desk.request(TICK, [bytes(268)])
    desk.output.scatter([1], [1], {"log_vol": np.array([[2]], np.float32), "p_up": np.array([[3]], np.float32)})
    header, frames = desk.replies.results([request])[0]

    assert outputs_of(header, frames) == {
        "log_vol": ("FP32", (1, 1), np.float32(2).tobytes()),
        "p_up": ("FP32", (1, 1), np.float32(3).tobytes()),
    }
    route = read_route(header, read_layout(header))
    assert (route.request_id, route.born_us, route.key, route.kind, route.flags) == (5, 6, 7, Kind.INFER_REPLY, Flag.FINAL)


def test_only_the_wanted_outputs_are_sent() -> None:
    """All of them when none is named; each wish has its own form."""
    desk = make_desk(TICKS)
    for wanted in (("p_up",), (), ("log_vol",)):
        header, frames = desk.replies.results([desk.request(TICK, [bytes(268)], *wanted)])[0]
        assert set(outputs_of(header, frames)) == set(wanted or ("log_vol", "p_up"))


def test_a_reply_is_a_copy() -> None:
    """The slot is used again as soon as it is made."""
    desk = make_desk(ANY)
    sizes = (4, MAX_INLINE_BYTES + 1)
    tensors = [any_form(size) for size in sizes]
    header, frames = desk.replies.results([desk.request(tensors, [b"\1" * size for size in sizes])])[0]
    desk.arena.regions[0][:] = 9

    assert {content for _, _, content in outputs_of(header, frames).values()} == {b"\1" * size for size in sizes}


@pytest.mark.parametrize("size", [0, 1, MAX_INLINE_BYTES, MAX_INLINE_BYTES + 1])
def test_what_is_small_lies_in_the_header_and_what_is_large_in_a_frame(size: int) -> None:
    """An echo gives back what came, of any size."""
    desk = make_desk(ANY)
    content = np.random.default_rng(1).bytes(size)
    header, frames = desk.replies.results([desk.request([any_form(size)], [content])])[0]

    assert outputs_of(header, frames) == {f"x{size}": ("UINT8", (size,), content)}
    assert len(frames) == (size > MAX_INLINE_BYTES)


def test_eight_outputs_that_all_fit_make_a_header_that_is_still_valid() -> None:
    """The most that a slot describes, each of the largest inline size."""
    desk = make_desk(ANY)
    tensors = [TensorForm(f"x{index}", DType.UINT8, (MAX_INLINE_BYTES,), MAX_INLINE_BYTES, True) for index in range(8)]
    contents = [bytes([index]) * MAX_INLINE_BYTES for index in range(8)]
    header, frames = desk.replies.results([desk.request(tensors, contents)])[0]

    assert [content for _, _, content in outputs_of(header, frames).values()] == contents


def test_outputs_of_varying_shape_have_the_one_of_this_slot() -> None:
    """Two slots with other numbers of boxes."""
    desk = make_desk(QC)
    for slot, boxes in ((0, 3), (2, 0)):
        link = desk.output
        buffers = link.buffers(slot)
        buffers["verdict"][:6] = np.frombuffer(b"\2\0\0\0OK", np.uint8)
        buffers["boxes"][:boxes] = slot + 1
        link.commit(slot, {"verdict": (1,), "score": (1,), "boxes": (boxes, 6)})
        header, frames = desk.replies.results([desk.request(PICTURE, [b"abc"], slot=slot)])[0]

        outputs = outputs_of(header, frames)
        assert outputs["verdict"] == ("BYTES", (1,), b"\2\0\0\0OK")
        assert outputs["boxes"] == ("FP32", (boxes, 6), np.full((boxes, 6), slot + 1, np.float32).tobytes())


def test_forms_of_ever_new_shapes_do_not_pile_up() -> None:
    """They start over when there are too many."""
    desk = make_desk(ANY)
    for size in range(MAX_TEMPLATES + 10):
        desk.replies.results([desk.request([any_form(size)], [bytes(size)])])[0]

    assert len(desk.replies._forms) <= MAX_TEMPLATES


def test_times_tell_waiting_and_running_of_each_stage() -> None:
    """Waiting counts from the end of the stage before; a stage with nothing to do has none."""
    desk = make_desk(TICKS)
    request = desk.request(TICK, [bytes(268)])
    desk.arena.stamps[1, 2] = (25_000, 95_000, 32)
    header, _ = desk.replies.results([request])[0]

    assert [tuple(row) for row in read_timing(header, read_layout(header))] == [(0, 0, 0), (0, 0, 0), (20, 70, 32), (0, 0, 0)]
    assert desk.replies.runs(1) == [(2, 70_000, 32)]
    assert read_backlog_us(header, read_layout(header)) == 4


@pytest.mark.parametrize("wanted", [[(), ()], [(), ("log_vol",)]], ids=["one form", "two forms"])
def test_replies_made_together_and_alone_are_the_same(wanted: list[tuple[str, ...]]) -> None:
    """Whatever way they are made."""
    desk = make_desk(TICKS)
    desk.arena.stamps[:] = np.arange(4 * 4 * 3).reshape(4, 4, 3) * 1_000
    requests = [desk.request(TICK, [bytes(268)], *names, slot=slot) for slot, names in zip((3, 1), wanted, strict=True)]

    assert desk.replies.results(requests) == [desk.replies.results([request])[0] for request in requests]


def test_a_reply_says_how_often_it_was_run_again() -> None:
    """Retries and marks together; one byte on the wire."""
    desk = make_desk(TICKS)
    request = desk.request(TICK, [bytes(268)])
    request.retries, request.marks = 2, 1
    header, _ = desk.replies.results([request])[0]
    assert read_retries(header, read_layout(header)) == 3

    request.retries = 1_000
    header, _ = desk.replies.results([request])[0]
    assert read_retries(header, read_layout(header)) == 255


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"image\0no picture", ("image", "no picture")), (b"\0all", ("", "all")), (b"x" * 256, ("x" * 256, ""))],
)
def test_the_error_of_a_stage_is_read_from_the_slot(text: bytes, expected: tuple[str, str]) -> None:
    """Field and message; whatever bytes are there, it is text."""
    desk = make_desk(TICKS)
    desk.arena.error[2] = np.frombuffer(text.ljust(256, b"\0"), np.uint8)

    assert desk.replies.error(2) == expected
    desk.arena.error[2] = 0xFF
    assert desk.replies.error(2)[0].isprintable()


def test_an_error_names_the_last_step_that_ran() -> None:
    """A hop says at which step its request stands."""
    desk = make_desk(QC)

    assert [desk.replies.stage_name(stage) for stage in range(6)] == [
        "decode", "decode", "preprocess", "infer", "postprocess", "postprocess",
    ]  # fmt: skip


def test_a_request_without_a_payload_is_a_fault_of_ours() -> None:
    """It was forgotten, so it was answered."""
    desk = make_desk(TICKS)
    request = make_request(Client(b""), 1, desk.lane, slot=0)

    assert not isinstance(request.payload, Payload)
    with pytest.raises(AssertionError):
        desk.replies.results([request])[0]
