"""Every datatype at every rank through a real server: a lane that echoes any tensors, and models that give back what they get."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from onnx_files import node, value, write_model
from raw_client import RawClient
from server import PATIENCE_S, Server
from shared_server import shared_server
from tensor_table import EMPTY_SHAPES, GOLDEN, SHAPES, as_input, golden_array, golden_bytes, same

from clients import AsyncClient, Bfloat16, CallError, Client, Encoded, Result
from schemas.config import parse_config
from schemas.layout import read_layout
from schemas.status import Code, Place
from schemas.templates import RequestOptions, RequestTemplate, TensorForm
from schemas.tensors import ITEM_BYTES, DType
from stages.pipeline import Pipeline

# ONNX's own numbers of the datatypes that a model can have (TensorProto.DataType).
ONNX_TYPES = {
    DType.FP32: 1, DType.UINT8: 2, DType.INT8: 3, DType.UINT16: 4, DType.INT16: 5, DType.INT32: 6, DType.INT64: 7, DType.BOOL: 9,
    DType.FP16: 10, DType.FP64: 11, DType.UINT32: 12, DType.UINT64: 13, DType.BF16: 16,
}  # fmt: skip
CASES = [(dtype, shape) for dtype in GOLDEN for shape in (*SHAPES, *EMPTY_SHAPES)]
LANE = """
[lane.{name}]
slots = 4
max_encoded_bytes = 65_536
backlog = 4096
{more}
"""


def identity(place: Path, name: str, dtype: DType, *dims: int | str) -> str:
    """Write a model whose output is its input, and return its lane."""
    number = ONNX_TYPES[dtype]
    inputs, outputs = [value("x", number, *dims)], [value("y", number, *dims)]
    write_model(place / f"{name}.onnx", [node("Identity", ["x"], ["y"])], inputs, outputs)
    return f'workers = "models"\nmodel = "{name}.onnx"\n'


def config(place: Path) -> str:
    """Return the lanes of all these tests: two processes serve them."""
    lanes = [LANE.format(name="echo", more="")]
    for dtype in ONNX_TYPES:
        one = identity(place, f"one_{dtype.name}", dtype, "rows", 3)
        lanes.append(LANE.format(name=f"one_{dtype.name}", more=one))
        free = identity(place, f"free_{dtype.name}", dtype, "rows", "width")
        lanes.append(LANE.format(name=f"free_{dtype.name}", more=free + "max_rows = 4"))
        many = identity(place, f"many_{dtype.name}", dtype, "rows", 3)
        lanes.append(LANE.format(name=f"many_{dtype.name}", more=many + "max_rows = 4"))
    for rank in range(1, 9):
        dims = ["rows", *(f"dim{at}" for at in range(1, rank))]
        lanes.append(LANE.format(name=f"rank{rank}", more=identity(place, f"rank{rank}", DType.FP32, *dims) + "max_rows = 6"))
    lanes.append(LANE.format(name="hollow", more=identity(place, "hollow", DType.FP32, "rows", 0, 3)))
    write_model(
        place / "twice.onnx",
        [node("Concat", ["x", "x"], ["y"], axis=1)],
        [value("x", 1, "rows", "width")],
        [value("y", 1, "rows", "twice")],
    )
    lanes.append(
        LANE.format(name="twice", more='workers = "models"\nmodel = "twice.onnx"\nmax_rows = 4\nmax_output_bytes = 4096')
    )
    return "\n".join(lanes)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of all these lanes."""
    with shared_server(config) as server:
        yield server


def refusal(client: Client, model: str, inputs: dict[str, Any], **options: Any) -> CallError:
    """Return the error that a request gets."""
    with pytest.raises(CallError) as caught:
        client.infer(model, inputs, **options)
    return caught.value


def exchanged(client: RawClient, dtype: DType, shape: tuple[int, ...], content: bytes, *, inline: bool) -> tuple[Any, ...]:
    """Send *content* to the echo lane and return (datatype, shape, bytes) of its answer, read from the wire."""
    template = RequestTemplate("echo", [TensorForm("x", dtype, shape, len(content), inline)])
    client.send(template, [content], None)
    header, *frames = client.socket.recv_multipart()
    client.pending.clear()
    (tensor,) = read_layout(header).tensors
    assert tensor.name == "x"
    at = tensor.inline_at
    return tensor.dtype, tensor.shape, header[at : at + tensor.nbytes] if tensor.place == Place.INLINE else frames[tensor.frame]


def test_each_datatype_at_each_rank_is_echoed(server: Server) -> None:
    """The table's bytes, inline and in a frame, and the arrays that a Python client makes of them."""
    with RawClient(server.endpoint) as client:
        for dtype, shape in CASES:
            content = golden_bytes(dtype, shape)
            for inline in (True, False):
                assert exchanged(client, dtype, shape, content, inline=inline) == (dtype, shape, content)
    with Client(server.endpoint) as client:
        results = client.infer_many("echo", [{"x": as_input(dtype, golden_array(dtype, shape))} for dtype, shape in CASES])
        for (dtype, shape), result in zip(CASES, results, strict=True):
            assert same(result["x"], golden_array(dtype, shape)), (dtype, shape)


def test_each_datatype_at_each_rank_is_echoed_to_asyncio(server: Server) -> None:
    """The whole table by the other Python client: many packed, and one by one beside each other, no rows and scalars included."""
    inputs = [{"x": as_input(dtype, golden_array(dtype, shape))} for dtype, shape in CASES]

    async def exchange() -> tuple[Sequence[Result], Sequence[Result]]:
        async with AsyncClient(server.endpoint, timeout_s=PATIENCE_S) as client:
            many = await client.infer_many("echo", inputs)
            return many, await asyncio.gather(*[client.submit("echo", one, copy=False) for one in inputs])

    for results in asyncio.run(exchange()):
        for (dtype, shape), result in zip(CASES, results, strict=True):
            assert same(result["x"], golden_array(dtype, shape)), (dtype, shape)


def echoes(server: Server, inputs: list[dict[str, Any]]) -> list[Sequence[object]]:
    """Return the answers of the lane ``echo``: of the blocking client, the asyncio client, and an embedded pipeline."""

    async def exchange() -> Sequence[object]:
        async with AsyncClient(server.endpoint, timeout_s=PATIENCE_S) as client:
            return await client.infer_many("echo", inputs)

    with Client(server.endpoint, timeout_s=PATIENCE_S) as client:
        blocking = client.infer_many("echo", inputs)
    with Pipeline(parse_config(LANE.format(name="echo", more=""), base=server.place, source="test.toml")) as pipeline:
        return [blocking, asyncio.run(exchange()), pipeline.infer_many("echo", inputs)]


@pytest.mark.parametrize("dtype", [dtype for dtype in GOLDEN if dtype is not DType.BYTES])
def test_each_datatype_arrives_from_any_memory(server: Server, dtype: DType) -> None:
    """At each rank from 2 on: big-endian, transposed, reversed, every second, Fortran order; by both clients and embedded."""
    inputs, expected = [], []
    for shape in SHAPES[2:]:
        array = golden_array(dtype, shape)
        wide = np.repeat(array, 2, axis=-1)
        for view in (
            array.astype(array.dtype.newbyteorder(">")),
            array.T,
            array[..., ::-1],
            wide[..., ::2],
            np.asfortranarray(array),
        ):
            inputs.append({"x": as_input(dtype, view)})
            expected.append(np.ascontiguousarray(view).astype(view.dtype.newbyteorder("<")))

    for results in echoes(server, inputs):
        for result, array in zip(results, expected, strict=True):
            assert isinstance(result, Mapping)
            assert same(result["x"], array), (dtype, array.shape)


def test_uneven_bytes_arrive_from_any_memory(server: Server) -> None:
    """At each rank: transposed, reversed, every second; by both clients and embedded."""
    views = [golden_array(DType.BYTES, shape) for shape in (*SHAPES, *EMPTY_SHAPES)]
    views += [view for array in views[2:9] for view in (array.T, array[..., ::-1], array[..., ::2], np.asfortranarray(array))]
    inputs = [{"x": view} for view in views]

    for results in echoes(server, inputs):
        for result, view in zip(results, views, strict=True):
            assert isinstance(result, Mapping)
            assert same(result["x"], view), view.shape


def test_models_of_each_datatype_answer_asyncio(server: Server) -> None:
    """As they answer the blocking client; and one without rows is refused alike."""

    async def exchange() -> None:
        async with AsyncClient(server.endpoint, timeout_s=PATIENCE_S) as client:
            for dtype in ONNX_TYPES:
                array = golden_array(dtype, (2, 3))
                many, free = f"many_{dtype.name}", f"free_{dtype.name}"
                for lane, sent in ((many, array), (free, array[:, :2])):
                    assert same((await client.infer(lane, {"x": as_input(dtype, sent)}))["y"], np.ascontiguousarray(sent)), lane
                with pytest.raises(CallError) as refused:
                    await client.infer(many, {"x": as_input(dtype, array[:0])})
                assert (refused.value.code, refused.value.field) == (Code.BAD_SHAPE, "x")
            for rank in range(1, 9):
                array = golden_array(DType.FP32, SHAPES[rank])
                assert same((await client.infer(f"rank{rank}", {"x": array}))["y"], array)

    asyncio.run(exchange())


def test_eight_tensors_of_different_kinds_keep_names_order_and_bytes(server: Server) -> None:
    """Large ones in frames, small ones inline, an empty one, an encoded blob."""
    inputs = {
        "large": np.arange(5000, dtype=np.float32).reshape(50, 100),
        "small": np.array([1, 2], np.int8),
        "empty": np.empty((0, 4), np.float64),
        "text": np.array([[b"", b"x" * 5000], [b"\0", b"end"]], object),
        "scalar": np.float16(1.5),
        "blob": Encoded(b"\x89anything"),
        "flags": np.array([True, False]),
    }
    inputs["n" * 32] = np.uint64(2**64 - 1)
    with Client(server.endpoint) as client:
        result = client.infer("echo", inputs)
        assert list(result) == list(inputs)
        for name, array in inputs.items():
            if isinstance(array, Encoded):
                assert result[name].tobytes() == array.content
            else:
                assert same(result[name], np.asarray(array)), name
        assert refusal(client, "echo", {**inputs, "ninth": np.uint8(1)}).code is Code.BAD_TENSOR
        assert refusal(client, "echo", {"n" * 33: np.uint8(1)}).code is Code.BAD_NAME


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<i8", ">u2", "<f2", ">c16"])
def test_any_strides_and_byte_order_arrive_as_the_same_numbers(server: Server, dtype: str) -> None:
    """Transposed, reversed, every second, Fortran order, read-only; complex numbers alone have no place on the wire."""
    array = np.arange(60).reshape(3, 4, 5).astype(dtype)
    array.flags.writeable = False
    views = [
        array,
        array.T,
        array[::-1, ::2, ::-1],
        np.asfortranarray(array),
        array[:, :, 2],
        np.broadcast_to(array[0, 0], (3, 5)),
    ]
    with Client(server.endpoint) as client:
        if array.dtype.kind == "c":
            assert refusal(client, "echo", {"x": array}).code is Code.BAD_DTYPE
            return
        for view in views:
            result = client.infer("echo", {"x": view}, copy=False)["x"]
            assert same(result, np.ascontiguousarray(view).astype(view.dtype.newbyteorder("<")))


def test_models_of_each_datatype_give_back_what_they_get(server: Server) -> None:
    """One row of a fixed shape, several rows, and rows of a free shape, whose outputs are of a size known only when it ran."""
    with Client(server.endpoint) as client:
        for dtype in ONNX_TYPES:
            two_rows = golden_array(dtype, (2, 3))
            for lane, array in (("one", two_rows[:1]), ("many", two_rows), ("free", two_rows), ("free", two_rows[:1, :2])):
                (result,) = client.infer(f"{lane}_{dtype.name}", {"x": as_input(dtype, array)}).values()
                assert same(result, array), (lane, dtype)
            wide = np.resize(golden_array(dtype, (6,)), (4, 700))
            assert same(client.infer(f"free_{dtype.name}", {"x": as_input(dtype, wide)})["y"], wide), dtype
            rows = [{"x": as_input(dtype, golden_array(dtype, (2, 3))[at % 2 : at % 2 + 1])} for at in range(32)]
            for at, result in enumerate(client.infer_many(f"one_{dtype.name}", rows)):
                assert same(result["y"], two_rows[at % 2 : at % 2 + 1]), dtype


def test_models_of_each_rank_give_back_what_they_get(server: Server) -> None:
    """From one dimension to eight; another rank is refused with the one that is right."""
    with Client(server.endpoint) as client:
        for rank in range(1, 9):
            array = golden_array(DType.FP32, SHAPES[rank])
            assert same(client.infer(f"rank{rank}", {"x": array})["y"], array)
            other = refusal(client, f"rank{rank}", {"x": golden_array(DType.FP32, SHAPES[rank - 1])})
            assert (other.code, other.field) == (Code.BAD_SHAPE, "x")


def test_a_model_gets_no_request_without_rows(server: Server) -> None:
    """Nothing could be run; other dimensions may be zero."""
    with Client(server.endpoint) as client:
        for lane in ("one_FP32", "many_FP32", "free_FP32"):
            error = refusal(client, lane, {"x": np.empty((0, 3), np.float32)})
            assert (error.code, error.field) == (Code.BAD_SHAPE, "x")
            assert ("[1, 3]" if lane == "one_FP32" else "1 row or more") in error.message
        for lane, shape in (("free_FP32", (2, 0)), ("hollow", (1, 0, 3)), ("rank8", (1, 1, 0, 1, 1, 2, 1, 1))):
            assert client.infer(lane, {"x": np.empty(shape, np.float32)})["y"].shape == shape


def test_more_rows_than_the_lane_takes_are_refused_by_its_key(server: Server) -> None:
    """The key is what an operator changes."""
    with Client(server.endpoint) as client:
        error = refusal(client, "many_FP32", {"x": np.zeros((5, 3), np.float32)})

    assert error.code is Code.TOO_LARGE
    assert "lane.many_FP32.max_rows" in error.message


def test_an_output_that_does_not_fit_is_an_error_that_names_the_key(server: Server) -> None:
    """Of that request alone: its batch mates are answered."""
    fits, too_large = np.ones((1, 512), np.float32), np.ones((1, 513), np.float32)
    with Client(server.endpoint) as client:
        assert client.infer("twice", {"x": fits})["y"].shape == (1, 1024)
        error = refusal(client, "twice", {"x": too_large})
        assert (error.code, error.field) == (Code.OUTPUT_TOO_LARGE, "lane.twice.max_output_bytes")
        assert "at most 4096 bytes" in error.message
        outcomes = client.infer_many("twice", [{"x": fits}, {"x": too_large}, {"x": fits}], return_exceptions=True)
        assert [getattr(outcome, "code", None) for outcome in outcomes] == [None, Code.OUTPUT_TOO_LARGE, None]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_refused_only_when_asked(server: Server, bad: float) -> None:
    """In each float, in any place, by the name of its input; integers with the same bits pass."""
    half, single, double = (np.array([1, 2, bad, 4], kind) for kind in (np.float16, np.float32, np.float64))
    brain = (single.view(np.uint32) >> 16).astype(np.uint16)
    sound = np.ones(3, np.float32)
    with Client(server.endpoint) as client:
        for array in (half, single, double, Bfloat16(brain)):
            error = refusal(client, "echo", {"good": sound, "bad one": array}, finite=True)
            assert (error.code, error.field) == (Code.NOT_FINITE, "bad one")
            client.infer("echo", {"good": sound, "bad one": array})
        client.infer("echo", {"good": sound, "same bits": brain, "more": single.view(np.int32)}, finite=True)
        large = np.ones(16_000, np.float32)
        large[-1] = bad
        assert refusal(client, "echo", {"x": large}, finite=True).code is Code.NOT_FINITE


def test_bytes_in_another_form_are_refused_by_the_server(server: Server) -> None:
    """A foreign client may send anything: left over, missing, beyond the end."""
    cases = {
        Code.SIZE_MISMATCH: (1, b"\1\0\0\0a\0"),
        Code.BAD_TENSOR: (1, b"\2\0\0\0a"),
    }
    with RawClient(server.endpoint) as client:
        for code, (count, content) in cases.items():
            template = RequestTemplate("echo", [TensorForm("x", DType.BYTES, (count,), len(content), True)])
            request = client.send(template, [content], None)
            client.finish()
            assert client.code_of(request) is code


def test_uneven_and_empty_elements_come_back_in_their_shape(server: Server) -> None:
    """Also a thousand of them in a frame."""
    rng = np.random.default_rng(8)
    elements = [rng.bytes(int(size)) for size in rng.integers(0, 40, 1000)]
    array = np.empty(1000, object)
    array[:] = elements
    with Client(server.endpoint) as client:
        result = client.infer("echo", {"x": array.reshape(10, 5, 20)})["x"]

    assert result.shape == (10, 5, 20)
    assert result.reshape(-1).tolist() == elements


def test_every_datatype_of_a_fixed_size_was_tried(server: Server) -> None:
    """None is left out of the models' table."""
    assert set(ONNX_TYPES) == set(ITEM_BYTES)


def test_a_checksum_is_compared_with_what_arrived(server: Server) -> None:
    """Of inline tensors and frames together; a wrong one is refused by its field, whatever the rest is."""
    inputs = {
        "small": np.arange(5, dtype=np.int16),
        "large": np.arange(20_000, dtype=np.uint16),
        "text": np.array([b"a", b""], object),
    }
    with Client(server.endpoint) as client:
        for some in (inputs, {"small": inputs["small"]}, {"large": inputs["large"]}, {"empty": np.empty(0, np.float32)}):
            result = client.infer("echo", some, checksum=True)
            assert all(same(result[name], array) for name, array in some.items())
    with RawClient(server.endpoint) as client:
        content = b"payload"
        form = TensorForm("x", DType.UINT8, (len(content),), len(content))
        right = xxhash.xxh64(content).intdigest()
        for checksum, code in ((right, None), (right ^ 1, Code.BAD_CHECKSUM), (1, Code.BAD_CHECKSUM)):
            template = RequestTemplate("echo", [form], RequestOptions(checksum=checksum))
            request = client.send(template, [content], {"x": content})
            client.finish()
            if code is None:
                client.assert_all_right(1)
            else:
                assert (client.code_of(request), client.tally.failures[request].field) == (code, "checksum")
