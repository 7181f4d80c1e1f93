"""The engine runs exactly the rows that are there, with the bits of a bare session, and names every fault in one line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx_files import BFLOAT16, FLOAT, INT32, INT64, node, value, write_model

from schemas.status import Code, ConfigError, RequestError
from schemas.tensors import DType, TensorSpec
from stages.engine import MAX_BINDINGS, OnnxEngine
from stages.onnx_model import error_text

DEMO = Path(__file__).parents[2] / "stages" / "demo"
FEATURES = np.load(DEMO / "trading_test.npz")["features"]
Shapes = tuple[tuple[int, ...], ...]


def run(engine: OnnxEngine, shapes: Shapes, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Return copies of the outputs for *inputs*, whose first dimension is the rows."""
    rows = len(next(iter(inputs.values())))
    for name, view in engine.input_views(rows, shapes).items():
        np.copyto(view, inputs[name])
    return {name: array.copy() for name, array in engine.run(rows, shapes).items()}


def plain(path: Path, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Return what a bare session gives."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Return True when both have the same names, shapes and bits."""
    return one.keys() == other.keys() and all(
        (one[name].shape, one[name].dtype, one[name].tobytes()) == (array.shape, array.dtype, array.tobytes())
        for name, array in other.items()
    )


def make_model(path: Path, kind: str, *outputs: bytes, inputs: list[bytes] | None = None) -> Path:
    """Write a model of one node from x (and more inputs) to y."""
    inputs = inputs or [value("x", FLOAT, "batch", 4)]
    names = ["x", "z"][: len(inputs)]
    return write_model(path / "model.onnx", [node(kind, names, ["y"])], inputs, list(outputs))


def config_error(path: Path, max_batch_size: int = 1) -> str:
    """Return the one line with which a model is refused; it names the file."""
    with pytest.raises(ConfigError) as caught:
        OnnxEngine(path, max_batch_size=max_batch_size)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_specs_are_ours_with_minus_one_for_free_dimensions() -> None:
    """The first dimension is the rows."""
    engine = OnnxEngine(DEMO / "surface_qc.onnx", max_batch_size=2)

    assert engine.inputs == (TensorSpec("image", DType.FP32, (-1, 1, -1, -1)),)
    assert engine.outputs == (TensorSpec("prob", DType.FP32, (-1, 4, -1, -1)),)


@pytest.mark.parametrize("rows", [1, 2, 5, 32])
def test_a_batch_gives_the_bits_of_a_bare_session(rows: int) -> None:
    """Whatever its size."""
    engine = OnnxEngine(DEMO / "trading_mlp.onnx", max_batch_size=32)
    features = FEATURES[:rows]

    assert same(run(engine, ((67,),), features=features), plain(DEMO / "trading_mlp.onnx", features=features))


def test_a_smaller_batch_is_not_disturbed_by_an_earlier_larger_one() -> None:
    """The buffers are the same; the rows are exactly those that are there."""
    engine = OnnxEngine(DEMO / "trading_mlp.onnx", max_batch_size=8)
    run(engine, ((67,),), features=FEATURES[8:16])

    alone = run(engine, ((67,),), features=FEATURES[:3])

    assert same(alone, plain(DEMO / "trading_mlp.onnx", features=FEATURES[:3]))


def test_rows_are_gathered_by_numpy_take_straight_into_the_view() -> None:
    """The view is C-contiguous, of the model's datatype, and the same memory each time."""
    engine = OnnxEngine(DEMO / "trading_mlp.onnx", max_batch_size=8)
    view = engine.input_views(3, ((67,),))["features"]

    np.take(FEATURES, [7, 5, 9], axis=0, out=view)

    assert engine.input_views(3, ((67,),))["features"].ctypes.data == view.ctypes.data
    assert same(dict(engine.run(3, ((67,),))), plain(DEMO / "trading_mlp.onnx", features=FEATURES[[7, 5, 9]]))


def test_pictures_of_changing_sizes_give_the_bits_of_a_bare_session() -> None:
    """Growing, shrinking and returning sizes; larger ones move the buffer."""
    path = DEMO / "surface_qc.onnx"
    engine = OnnxEngine(path, max_batch_size=2)
    rng = np.random.default_rng(0)

    for height, width in ((32, 32), (64, 48), (16, 24), (32, 32), (96, 64), (32, 32)):
        image = rng.normal(size=(2, 1, height, width)).astype(np.float32)
        assert same(run(engine, ((1, height, width),), image=image), plain(path, image=image))


def test_more_shapes_than_are_remembered_still_run(tmp_path: Path) -> None:
    """The oldest are bound anew. The largest comes first, as growing the buffer forgets all bindings."""
    path = make_model(tmp_path, "Neg", value("y", FLOAT, "batch", "n"), inputs=[value("x", FLOAT, "batch", "n")])
    engine = OnnxEngine(path, max_batch_size=1)

    for size in (*range(MAX_BINDINGS + 10, 0, -1), MAX_BINDINGS + 10):
        x = np.full((1, size), size, np.float32)
        assert np.array_equal(run(engine, ((size,),), x=x)["y"], -x)
    assert len(engine._bindings) == MAX_BINDINGS


def test_several_inputs_and_integers_work(tmp_path: Path) -> None:
    """int64 in and out."""
    inputs = [value("x", INT64, "batch", 3), value("z", INT64, "batch", 3)]
    engine = OnnxEngine(make_model(tmp_path, "Add", value("y", INT64, "batch", 3), inputs=inputs), max_batch_size=4)
    x = np.arange(6).reshape(2, 3)

    assert engine.row_shapes == ((3,), (3,))
    assert np.array_equal(run(engine, ((3,), (3,)), x=x, z=x * 10)["y"], x * 11)


def test_inputs_of_different_datatypes_work(tmp_path: Path) -> None:
    """Each has a buffer of its own."""
    path = tmp_path / "model.onnx"
    nodes = [node("Cast", ["x"], ["wide"], to=FLOAT), node("Mul", ["wide", "z"], ["y"])]
    inputs = [value("x", INT32, "batch", 2), value("z", FLOAT, "batch", 2)]
    engine = OnnxEngine(write_model(path, nodes, inputs, [value("y", FLOAT, "batch", 2)]), max_batch_size=4)

    y = run(engine, ((2,), (2,)), x=np.array([[1, 2]], np.int32), z=np.array([[0.5, 4]], np.float32))["y"]

    assert y.tolist() == [[0.5, 8.0]]


def test_an_output_whose_size_depends_on_its_content_is_right_each_time(tmp_path: Path) -> None:
    """onnxruntime would hold the next run to the size of the last."""
    nodes = [node("NonZero", ["x"], ["at"]), node("Transpose", ["at"], ["pairs"]), node("Flatten", ["pairs"], ["y"], axis=0)]
    path = write_model(tmp_path / "model.onnx", nodes, [value("x", FLOAT, "batch", 4)], [value("y", INT64, 1, "n")])
    engine = OnnxEngine(path, max_batch_size=1)

    for count in (1, 4, 2):
        x = np.array([[1.0] * count + [0.0] * (4 - count)], np.float32)
        assert run(engine, ((4,),), x=x)["y"].shape == (1, 2 * count)


def test_an_output_without_one_row_for_each_row_is_the_models_failure(tmp_path: Path) -> None:
    """Nobody could tell whose it is."""
    engine = OnnxEngine(make_model(tmp_path, "Shape", value("y", INT64, 2)), max_batch_size=4)

    with pytest.raises(RequestError) as caught:
        run(engine, ((4,),), x=np.zeros((3, 4), np.float32))

    assert (caught.value.code, caught.value.field) == (Code.MODEL_FAILED, "y")


def test_an_exception_of_the_model_is_one_printable_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And nothing of it reaches stderr, which belongs to the JSON log; the engine goes on."""
    inputs = [value("x", FLOAT, "batch", "n"), value("z", FLOAT, "batch", "n")]
    engine = OnnxEngine(make_model(tmp_path, "Add", value("y", FLOAT, "batch", "n"), inputs=inputs), max_batch_size=2)

    with pytest.raises(RequestError) as caught:
        run(engine, ((3,), (4,)), x=np.zeros((1, 3), np.float32), z=np.zeros((1, 4), np.float32))

    assert caught.value.code is Code.MODEL_FAILED
    assert caught.value.message.isprintable()
    assert len(caught.value.message) <= 200
    assert capfd.readouterr().err == ""
    assert run(engine, ((3,), (3,)), x=np.ones((1, 3), np.float32), z=np.ones((1, 3), np.float32))["y"].tolist() == [[2, 2, 2]]


def test_warm_up_times_each_batch_size() -> None:
    """Powers of two and the largest; the numbers bound what a run may be expected to take."""
    times_ns = OnnxEngine(DEMO / "trading_mlp.onnx", max_batch_size=6).warm_up()

    assert list(times_ns) == [1, 2, 4, 6]
    assert min(times_ns.values()) > 0


def test_warm_up_of_free_shapes_needs_an_example() -> None:
    """Without one there is nothing to run."""
    engine = OnnxEngine(DEMO / "surface_qc.onnx", max_batch_size=2)

    assert engine.row_shapes is None
    assert engine.warm_up() == {}
    assert list(engine.warm_up(((1, 32, 32),))) == [1, 2]


def test_a_model_that_fails_on_zeros_is_refused_at_the_start(tmp_path: Path) -> None:
    """With the file's name."""
    inputs = [value("x", FLOAT, "batch", 3), value("z", FLOAT, "batch", "n")]
    path = make_model(tmp_path, "Add", value("y", FLOAT, "batch", 3), inputs=inputs)

    with pytest.raises(ConfigError, match=r"model\.onnx"):
        OnnxEngine(path, max_batch_size=1).warm_up(((3,), (4,)))


def test_a_model_of_fixed_single_rows_runs_one_at_a_time(tmp_path: Path) -> None:
    """And says so when it is configured for more."""
    path = make_model(tmp_path, "Neg", value("y", FLOAT, 1, 4), inputs=[value("x", FLOAT, 1, 4)])

    assert "max_batch_size = 1" in config_error(path, max_batch_size=2)
    assert run(OnnxEngine(path, max_batch_size=1), ((4,),), x=np.ones((1, 4), np.float32))["y"].tolist() == [[-1] * 4]


@pytest.mark.parametrize("dims", [(), (2, "batch")])
def test_an_input_without_rows_is_refused(tmp_path: Path, dims: tuple[int | str, ...]) -> None:
    """A scalar, or rows somewhere else."""
    path = make_model(tmp_path, "Neg", value("y", FLOAT, *dims), inputs=[value("x", FLOAT, *dims)])

    assert "the first dimension must be the rows" in config_error(path)


def test_strings_are_refused(tmp_path: Path) -> None:
    """Only numbers have a fixed size."""
    path = make_model(tmp_path, "Identity", value("y", 8, "batch"), inputs=[value("x", 8, "batch")])

    assert "tensor(string)" in config_error(path)


def test_a_missing_model_file_is_named(tmp_path: Path) -> None:
    """A directory is none either."""
    assert "no such model file" in config_error(tmp_path / "no.onnx")
    assert "no such model file" in config_error(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a model", b"\xff" * 1000])
def test_a_file_that_is_no_model_is_named(tmp_path: Path, content: bytes) -> None:
    """Empty, text, garbage."""
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)

    assert "cannot load it as an ONNX model" in config_error(path)


def test_half_a_model_is_named(tmp_path: Path) -> None:
    """As a broken copy leaves it."""
    path = tmp_path / "half.onnx"
    path.write_bytes((DEMO / "trading_mlp.onnx").read_bytes()[:50_000])

    assert "copy it again" in config_error(path)


def test_a_missing_onnxruntime_is_named_with_the_extra_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A base installation has none."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    with pytest.raises(ConfigError, match=r"pip install 'slotline\[cpu\]'"):
        OnnxEngine(DEMO / "trading_mlp.onnx", max_batch_size=1)


def test_bf16_outputs_of_unknown_size_come_as_bits(tmp_path: Path) -> None:
    """onnxruntime has no numpy() for them."""
    path = make_model(
        tmp_path, "Identity", value("y", BFLOAT16, "batch", "width"), inputs=[value("x", BFLOAT16, "batch", "width")]
    )
    bits = np.array([[0x3F80, 0xC000], [0x8000, 0x7F7F]], np.uint16)

    assert same(run(OnnxEngine(path, max_batch_size=2), ((2,),), x=bits), {"y": bits})


def test_an_error_of_onnxruntime_is_told_without_the_place_in_its_sources() -> None:
    """The reason comes last in its text, and must not be cut off for a build path."""
    place = "/onnxruntime_src/onnxruntime/core/providers/cpu/tensor/reshape_helper.h:47 onnxruntime::Helper(const Shape&, bool) "

    assert error_text(RuntimeError(f"while running Reshape node. Status Message: {place}sizes\n differ")) == (
        "while running Reshape node. Status Message: sizes differ"
    )
