"""What a stage writes into a slot is what the next one reads there, in shared memory or in an array of one process."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from builders import DEMO, make_arena, make_plan
from numpy.typing import NDArray

from schemas.arena import LaneArena, read_descriptor, write_descriptor, write_name
from schemas.config import parse_config
from schemas.plan import LanePlan
from schemas.status import Code, RequestError
from schemas.tensors import DType, TensorSpec, pack_bytes
from stages.lane_plan import ModelSpec, build_plan
from stages.links import FANCY_GATHER_BYTES, Link, ScratchLink, SharedLink, make_link

OUTPUTS = """
outputs = [
    { name = "plane", dtype = "FP32", shape = [-1, -1], max_shape = [4, 6] },
    { name = "words", dtype = "BYTES", shape = [-1], max_shape = [8], max_bytes = 64 },
    { name = "fixed", dtype = "INT16", shape = [3] },
]
"""
# The stage decode writes for preprocess, in two processes (shared) or one (scratch).
CUTS = {"shared": '[["decode"], ["preprocess", "postprocess"]]', "scratch": '[["decode", "preprocess", "postprocess"]]'}
ONE = np.frombuffer(pack_bytes([b"one"]), np.uint8)


def make_lane(kind: str) -> tuple[Link, LaneArena]:
    """Return the link between decode and preprocess of a lane with 4 slots, and its arena."""
    tables = "".join(f'[lane.f.{stage}]\nuse = "stages.demo.surface:verdict"{OUTPUTS}' for stage in ("decode", "preprocess"))
    plan = make_plan(f"[lane.f]\nslots = 4\nprocesses = {CUTS[kind]}\n{tables}").lanes[0]
    arena = make_arena(plan)
    return make_link(arena, plan.links[1], 1), arena


@pytest.fixture(params=["shared", "scratch"])
def link(request: pytest.FixtureRequest) -> Link:
    """Each kind of link in turn."""
    made, _ = make_lane(request.param)
    assert isinstance(made, SharedLink if request.param == "shared" else ScratchLink)
    return made


def model_links(more: str, *, inputs: TensorSpec, outputs: TensorSpec) -> tuple[LanePlan, list[SharedLink], LaneArena]:
    """Return the plan and links of a lane with a model that takes and gives what a test says."""
    text = f'[lane.m]\nslots = 4\nmodel = "trading_mlp.onnx"\n{more}'
    config = parse_config(text, base=DEMO, source="test.toml")
    plan = build_plan(config, {"m": ModelSpec((inputs,), (outputs,))}).lanes[0]
    arena = make_arena(plan)
    return plan, [SharedLink(arena, found, index) for index, found in enumerate(plan.links)], arena


def write(link: Link, slot: int, shapes: Mapping[str, tuple[int, ...]], plane: NDArray[np.float32]) -> None:
    """Write a slot as a user's function does: into the corner of each largest shape."""
    buffers = link.buffers(slot)
    buffers["plane"][tuple(map(slice, plane.shape))] = plane
    buffers["words"][: ONE.size] = ONE
    buffers["fixed"][:] = [1, 2, 3]
    link.commit(slot, {"plane": plane.shape, "words": (1,), "fixed": (3,), **shapes}, strided=True)


@pytest.mark.parametrize("shape", [(4, 6), (2, 6), (3, 2), (1, 1), (0, 6), (2, 0)])
def test_what_was_written_is_read(link: Link, shape: tuple[int, int]) -> None:
    """Of any size up to the largest, also where rows are shorter than they could be."""
    plane = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    write(link, 2, {}, plane)

    read = link.read(2)
    assert read["plane"].tobytes() == plane.tobytes()
    assert read["plane"].shape == shape
    assert read["words"].tobytes() == ONE.tobytes()
    assert read["fixed"].tolist() == [1, 2, 3]


def test_slots_do_not_touch_each_other(link: Link) -> None:
    """Each keeps what was written into it."""
    planes = [np.full((4, 6), slot, np.float32) for slot in range(4)]
    for slot, plane in enumerate(planes):
        write(link, slot, {}, plane)

    assert all((link.read(slot)["plane"] == slot).all() for slot in range(4))


@pytest.mark.parametrize("shape", [(2,), (4,), (3, 1), ()])
def test_a_size_that_is_not_free_is_kept(link: Link, shape: tuple[int, ...]) -> None:
    """Else the reader would take what an earlier request left for this one's."""
    with pytest.raises(RequestError) as caught:
        write(link, 0, {"fixed": shape}, np.zeros((1, 1), np.float32))

    assert (caught.value.code, caught.value.field) == (Code.MODEL_FAILED, "fixed")


def test_bytes_that_are_not_in_the_binary_form_are_the_stages_fault(link: Link) -> None:
    """Their real length is in them, so they are looked at."""
    link.buffers(0)["words"][:] = 255

    with pytest.raises(RequestError) as caught:
        link.commit(0, {"plane": (1, 6), "words": (1,), "fixed": (3,)})
    assert (caught.value.code, caught.value.field) == (Code.MODEL_FAILED, "words")


def test_flat_content_stays_where_it_is(link: Link) -> None:
    """A decoder knows the picture's size only afterwards and writes it without gaps."""
    link.buffers(1)["plane"].reshape(-1)[:6] = range(6)
    link.commit(1, {"plane": (3, 2), "words": (0,), "fixed": (3,)})

    assert link.read(1)["plane"].tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("kind", ["shared", "scratch"])
def test_rows_are_gathered_in_order(kind: str) -> None:
    """The first dimension is the rows of each slot."""
    link, _ = make_lane(kind)
    write(link, 3, {}, np.full((2, 6), 3, np.float32))
    write(link, 1, {}, np.full((1, 6), 1, np.float32))
    out = np.empty((3, 6), np.float32)
    link.gather("plane", [3, 1], out)

    assert out[:, 0].tolist() == [3, 3, 1]


def test_a_private_array_is_forgotten_with_its_slot() -> None:
    """Memory of slots that are elsewhere is not kept."""
    link, _ = make_lane("scratch")
    assert isinstance(link, ScratchLink)
    write(link, 0, {}, np.zeros((1, 1), np.float32))
    link.drop(0)
    link.drop(0)

    with pytest.raises(KeyError):
        link.read(0)


def test_a_private_output_is_a_copy() -> None:
    """The engine writes its arrays again with the next batch, which may come before this slot is done."""
    link, _ = make_lane("scratch")
    values = np.arange(3, dtype=np.float32).reshape(3, 1)
    link.scatter([0, 1], [1, 2], {"y": values})
    values[:] = 9

    assert [link.read(slot)["y"].tolist() for slot in (0, 1)] == [[[0]], [[1], [2]]]


def test_stages_cannot_write_the_input() -> None:
    """A request that runs again finds it as it came."""
    _, (first, _), _ = model_links("", inputs=TensorSpec("x", DType.FP32, (-1, 4)), outputs=TensorSpec("y", DType.FP32, (-1, 2)))

    with pytest.raises(ValueError, match="read-only"):
        first.read(0)["x"][...] = 1


@pytest.mark.parametrize("columns", [4, FANCY_GATHER_BYTES])
@pytest.mark.parametrize("slots", [[2], [3, 0, 1]])
def test_static_rows_are_gathered_and_handed_back(columns: int, slots: list[int]) -> None:
    """Small ones by one index, large ones row by row, one alone as bytes: the same result."""
    rows = TensorSpec("x", DType.FP32, (-1, columns))
    _, (first, scores), arena = model_links("", inputs=rows, outputs=TensorSpec("y", DType.FP32, (-1, columns)))
    sent = np.random.default_rng(1).normal(size=(4, columns)).astype(np.float32)
    arena.regions[0][:, : columns * 4] = sent.view(np.uint8)
    out = np.empty((len(slots), columns), np.float32)

    first.gather("x", slots, out)
    assert out.tobytes() == sent[slots].tobytes()
    assert scores.scatter(slots, [1] * len(slots), {"y": out * 2}) == [None] * len(slots)
    assert all(scores.read(slot)["y"].tobytes() == (sent[slot] * 2).tobytes() for slot in slots)
    scores.commit(0, {"y": (1, columns)})
    assert not arena.descriptors.any()


def test_outputs_of_many_rows_are_handed_to_their_slots() -> None:
    """Each gets its own rows, with their real shape."""
    _, (_, scores), _ = model_links(
        "max_rows = 3\n", inputs=TensorSpec("x", DType.FP32, (-1, 4)), outputs=TensorSpec("y", DType.INT64, (-1, 2))
    )
    values = np.arange(8, dtype=np.int64).reshape(4, 2)

    assert scores.scatter([2, 0], [3, 1], {"y": values}) == [None, None]
    assert scores.read(2)["y"].tolist() == values[:3].tolist()
    assert scores.read(0)["y"].tolist() == values[3:].tolist()


def test_an_output_that_does_not_fit_is_that_requests_error_alone() -> None:
    """Named by the config key that gives more room."""
    plan, (_, scores), _ = model_links(
        "max_rows = 3\nmax_output_bytes = 64\n",
        inputs=TensorSpec("x", DType.FP32, (-1, 4)),
        outputs=TensorSpec("y", DType.FP32, (-1, -1)),
    )
    small, large = scores.scatter([0, 1], [1, 2], {"y": np.zeros((3, 10), np.float32)})

    assert plan.links[1].row_bytes == 64
    assert small is None
    assert large is not None
    assert (large.code, large.field) == (Code.OUTPUT_TOO_LARGE, "lane.m.max_output_bytes")


def test_a_lane_of_any_tensors_reads_names_from_the_slot() -> None:
    """As many as the broker described."""
    plan = make_plan("[lane.e]\nslots = 2\n").lanes[0]
    arena = make_arena(plan)
    link = SharedLink(arena, plan.links[0], 0)
    arena.regions[0][1, 64:68] = [1, 2, 3, 4]
    for index, (name, dtype, nbytes, offset) in enumerate([("a", DType.INT8, 0, 0), ("b", DType.UINT16, 4, 64)]):
        write_descriptor(arena.descriptors[0, 1, index], dtype, (nbytes // 2,), nbytes=nbytes, offset=offset)
        write_name(arena.descriptors[0, 1, index], name.encode())

    read = link.read(1)
    assert list(read) == ["a", "b"]
    assert read["b"].tolist() == [0x0201, 0x0403]
    assert link.read(0) == {}


def test_the_real_shape_is_in_the_slot_for_the_next_process() -> None:
    """With datatype, bytes and place."""
    link, arena = make_lane("shared")
    write(link, 0, {}, np.zeros((3, 2), np.float32))

    assert [read_descriptor(words) for words in arena.descriptors[1, 0, :3]] == [
        (DType.FP32, (3, 2), 24, 0),
        (DType.BYTES, (1,), 7, 128),
        (DType.INT16, (3,), 6, 192),
    ]
