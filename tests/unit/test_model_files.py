"""A model's files: all of them are in its digest, and none is read again while its size and times tell that it is the same."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx_files import FLOAT, constant, external_tensor, node, value, write_model

from schemas.config import parse_config
from schemas.plan import LanePlan
from schemas.status import ConfigError
from stages.engine import OnnxEngine
from stages.lane_plan import ModelSpec, build_plan
from stages.model_files import SETTLED_NS, check_model, external_files, look_at

CONFIG = '[lane.sum]\nmodel = "sum.onnx"\nmax_encoded_bytes = 4096\n'
WEIGHTS = np.arange(4, dtype=np.float32)


def write(place: Path, *, weights: bytes = WEIGHTS.tobytes(), bias: bytes = WEIGHTS.tobytes()) -> Path:
    """Write a model that adds two vectors of 4 to its input: an initializer and a node's attribute, each in a file of its own."""
    (place / "weights.bin").write_bytes(weights)
    (place / "bias.bin").write_bytes(bias)
    nodes = [
        constant("c", external_tensor("", FLOAT, [4], "bias.bin")),
        node("Add", ["x", "w"], ["t"]),
        node("Add", ["t", "c"], ["y"]),
    ]
    initializers = [external_tensor("w", FLOAT, [4], "weights.bin"), external_tensor("unused", FLOAT, [4], "weights.bin")]
    path = place / "sum.onnx"
    return write_model(path, nodes, [value("x", FLOAT, "n", 4)], [value("y", FLOAT, "n", 4)], initializers)


def plan_of(place: Path, *, age_ns: int = 0) -> LanePlan:
    """Return the lane's plan; with *age_ns* as it is made when all files have stood still for so long."""
    path = write(place)
    config = parse_config(CONFIG, base=place, source="test.toml")
    if age_ns:
        # Times of change cannot be set: they must pass.
        youngest_ns = max(os.stat(file).st_ctime_ns for file in place.iterdir())
        time.sleep(max(0, youngest_ns + age_ns - time.time_ns()) / 1e9)
    engine = OnnxEngine(path, max_batch_size=1)
    return build_plan(config, {"sum": ModelSpec(engine.inputs, engine.outputs, look_at(path))}).lanes[0]


def check(place: Path, plan: LanePlan) -> None:
    """Check the lane's model as a worker does at its start."""
    check_model(parse_config(CONFIG, base=place, source="test.toml").lanes[0], plan)


def test_the_model_is_one_that_runs(tmp_path: Path) -> None:
    """Its two files are where its numbers come from."""
    engine = OnnxEngine(write(tmp_path), max_batch_size=1)
    engine.input_views(1, ((4,),))["x"][:] = 1

    assert engine.run(1, ((4,),))["y"].tolist() == [[1, 3, 5, 7]]


def test_the_files_of_initializers_and_attributes_are_found(tmp_path: Path) -> None:
    """Each once; a model without any has none."""
    assert sorted(external_files(write(tmp_path))) == [tmp_path / "bias.bin", tmp_path / "weights.bin"]
    assert external_files(Path(__file__).parents[2] / "stages" / "demo" / "trading_mlp.onnx") == []


@pytest.mark.parametrize("changed", ["weights", "bias"])
def test_each_file_is_in_the_digest(tmp_path: Path, changed: str) -> None:
    """One bit of one of them makes another model."""
    before = look_at(write(tmp_path)).digest
    assert look_at(write(tmp_path)).digest == before

    assert look_at(write(tmp_path, **{changed: (WEIGHTS + 1).tobytes()})).digest != before


def test_a_file_that_changed_since_the_plan_is_refused(tmp_path: Path) -> None:
    """And one that is gone, by its name; one that was written again as it was is the same."""
    plan = plan_of(tmp_path)
    write(tmp_path)
    check(tmp_path, plan)

    (tmp_path / "weights.bin").write_bytes((WEIGHTS + 1).tobytes())
    with pytest.raises(ConfigError, match=r"sum\.onnx was changed since the server started: restart the server"):
        check(tmp_path, plan)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ConfigError, match=r"weights\.bin: a file of the model .*no such file"):
        check(tmp_path, plan)


def test_young_files_are_compared_by_their_bytes(tmp_path: Path) -> None:
    """They may be written again within one tick of their time stamps."""
    plan = plan_of(tmp_path)
    assert plan.model_marks == ""

    check(tmp_path, plan)
    with pytest.raises(ConfigError, match="was changed"):
        check(tmp_path, replace(plan, model_digest="another"))


def test_settled_files_are_not_read_again(tmp_path: Path) -> None:
    """Gigabytes of weights are read once for the plan, not once more by each worker."""
    plan = plan_of(tmp_path, age_ns=SETTLED_NS)

    # A digest that is none shows whether anybody looks at it.
    check(tmp_path, replace(plan, model_digest="another"))
    os.utime(tmp_path / "weights.bin")
    with pytest.raises(ConfigError, match="was changed"):
        check(tmp_path, replace(plan, model_digest="another"))
