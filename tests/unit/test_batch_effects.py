"""Which outputs depend on who else is in the batch: none of the demo models', one of a model that mixes its rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from onnx_files import BFLOAT16, FLOAT, INT64, node, value, write_model
from test_engine import make_engine

from schemas.config import LeaseConfig, parse_config
from schemas.plan import read_plan
from stages.batch_effects import batch_effects
from stages.describe import check_all, check_text, describe

DEMO = Path(__file__).parents[2] / "stages" / "demo"
BOOL, FP16 = 9, 10


def effects_of(path: Path, rows: int = 8) -> dict[str, float] | None:
    """Return what is found of a model that takes *rows* at once."""
    return batch_effects(make_engine(path, max_batch_size=rows), rows)


def mixing(place: Path, kind: int = FLOAT, *dims: int | str) -> Path:
    """Write a model of two outputs: ``y`` is each row's share of its column, ``z`` each row's own negative."""
    dims = dims or ("n", 4)
    nodes = [node("Softmax", ["x"], ["y"], axis=0), node("Neg", ["x"], ["z"])]
    return write_model(place / "mixing.onnx", nodes, [value("x", kind, *dims)], [value(name, kind, *dims) for name in "yz"])


def test_rows_of_the_demo_models_do_not_depend_on_their_batch() -> None:
    """The demo compares bits, so they must not; the second one's pictures may have any size."""
    assert effects_of(DEMO / "trading_mlp.onnx", 32) == {}
    assert effects_of(DEMO / "surface_qc.onnx", 4) == {}


@pytest.mark.parametrize("dims", [("n", 4), ("n", "width")])
def test_an_output_that_depends_on_its_batch_is_named(tmp_path: Path, dims: tuple[str | int, ...]) -> None:
    """With how much: alone, each is the whole of its column. The other output is not."""
    found = effects_of(mixing(tmp_path, FLOAT, *dims))

    assert found is not None
    assert list(found) == ["y"]
    assert 0.5 < found["y"] < 1


@pytest.mark.parametrize("kind", [FP16, BFLOAT16, INT64, BOOL])
def test_models_of_other_datatypes_are_judged_too(tmp_path: Path, kind: int) -> None:
    """Floats of 16 bits, and numbers and truths that can only be indices."""
    path = tmp_path / "model.onnx"
    write_model(path, [node("Identity", ["x"], ["y"])], [value("x", kind, "n", 4)], [value("y", kind, "n", 4)])

    assert effects_of(path) == {}


def test_a_model_quantised_dynamically_is_seen(tmp_path: Path) -> None:
    """Its scale is that of the whole batch."""
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    path = write_model(tmp_path / "int8.onnx", nodes, [value("x", FLOAT, "n", 16)], [value("y", FLOAT, "n", 16)])
    found = effects_of(path)

    assert found is not None
    assert 0 < found["y"] < 0.1


def test_what_does_not_run_with_our_shapes_is_not_known(tmp_path: Path) -> None:
    """None is neither yes nor no."""
    nodes = [node("MatMul", ["x", "z"], ["y"])]
    inputs = [value("x", FLOAT, "n", 2, "k"), value("z", FLOAT, "n", 63, "m")]
    path = write_model(tmp_path / "picky.onnx", nodes, inputs, [value("y", FLOAT, "n", 2, "m")])

    assert effects_of(path) is None


def test_it_ends_when_the_time_is_over(tmp_path: Path) -> None:
    """After the smallest batch, which is seen in any case."""
    engine = make_engine(mixing(tmp_path), max_batch_size=1024)

    assert list(batch_effects(engine, 1024, limit_ns=0) or {}) == ["y"]
    assert not {rows for rows, _ in engine._free[0]._bindings} - {1, 2}


def test_check_tells_it_and_the_plan_keeps_it(tmp_path: Path) -> None:
    """In the sentence for people and in JSON; a lane of one row a batch has nothing to tell."""
    mixing(tmp_path)
    text = '[lane.mixed]\nmodel = "mixing.onnx"\nmax_encoded_bytes = 4096\n'
    plan = describe(parse_config(text, base=tmp_path, source="test.toml"))
    single = describe(parse_config(text + "max_batch_size = 1\n", base=tmp_path, source="test.toml"))

    assert read_plan(plan.to_json()) == plan
    found = check_all(plan, LeaseConfig())
    assert json.loads(json.dumps(found))["lanes"][0]["batch_dependent"].keys() == {"y"}
    assert "batch_dependent  yes: y (by up to 0." in check_text(found)
    assert "batch_dependent  no" in check_text(check_all(single, LeaseConfig()))
