"""``preprocess.use = "resize"``: what a lane's config and its model make of a picture, and a lane that does it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from bench.gpu.network import write_network
from schemas.config import parse_config
from schemas.status import ConfigError
from schemas.tensors import DType, TensorSpec
from stages.demo import config_path
from stages.pipeline import Pipeline
from stages.resize import ResizeSpec, resize_rows
from stages.resize_plan import resize_plan

RGB = TensorSpec("image", DType.FP32, (-1, 3, 224, 192))


def plan(given: TensorSpec | None, preprocess: str = "", decode: str = "use = 'image'") -> tuple[ResizeSpec, str]:
    """Return what a lane with these tables and this model's input resizes to."""
    text = f"[lane.a]\nmodel = 'trading_mlp.onnx'\n[lane.a.decode]\n{decode}\n[lane.a.preprocess]\nuse = 'resize'\n{preprocess}\n"
    (lane,) = parse_config(text, base=config_path().parent, source="test.toml").lanes
    return resize_plan(lane, given)


def test_sizes_and_datatype_are_the_models() -> None:
    """Nothing need be said twice."""
    spec, name = plan(RGB)

    assert name == "image"
    assert spec == ResizeSpec(224, 192, 3, DType.FP32, (0.0,) * 3, (1.0,) * 3)


def test_a_model_that_takes_any_size_gets_the_one_of_the_config() -> None:
    """Grey in FP16 here; one factor serves all channels."""
    spec, name = plan(
        TensorSpec("x", DType.FP16, (-1, -1, -1, -1)),
        "height = 32\nwidth = 64\nmean = [127.5]\nscale = [0.01]",
        "use = 'image'\ncolor = 'grey'",
    )

    assert (spec, name) == (ResizeSpec(32, 64, 1, DType.FP16, (127.5,), (0.01,)), "x")


@pytest.mark.parametrize(
    ("given", "preprocess", "decode", "expected"),
    [
        (RGB, "", "use = 'tensor'", 'lane.a.preprocess.use: "resize" takes pixels of 8 bits'),
        (RGB, "", "use = 'image'\ncolor = 'grey'\ndepth = 16", 'lane.a.preprocess.use: "resize" takes pixels of 8 bits'),
        (RGB, "", "use = 'image'\ncolor = 'grey'", "this model takes FP32 [-1, 3, 224, 192]"),
        (TensorSpec("x", DType.UINT8, (-1, 3, 8, 8)), "", "use = 'image'", "this model takes UINT8 [-1, 3, 8, 8]"),
        (TensorSpec("x", DType.FP32, (-1, 67)), "", "use = 'image'", "this model takes FP32 [-1, 67]"),
        (RGB, "height = 100", "use = 'image'", "lane.a.preprocess.height: the model takes 224, not 100: leave it out"),
        (None, "height = 100", "use = 'image'", "lane.a.preprocess.width: missing: the model takes any width"),
        (RGB, "mean = [1, 2]", "use = 'image'", "lane.a.preprocess.mean: expected 1 or 3 numbers, one for each channel; got 2"),
    ],
)
def test_what_does_not_fit_is_refused_by_key(given: TensorSpec | None, preprocess: str, decode: str, expected: str) -> None:
    """One line that says what to change."""
    with pytest.raises(ConfigError) as caught:
        plan(given, preprocess, decode)

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mean = []", "lane.a.preprocess.mean = []: expected a list of 1 to 3 numbers"),
        ("scale = ['x']", "expected a list of 1 to 3 numbers"),
        ("height = -1", "lane.a.preprocess.height = -1: expected a whole number from 0 to 32768"),
        ("side = 3", "lane.a.preprocess.side: unknown"),
    ],
)
def test_a_key_that_is_wrong_by_itself_is_refused_when_the_config_is_read(line: str, expected: str) -> None:
    """Before any model is loaded."""
    with pytest.raises(ConfigError) as caught:
        plan(RGB, line)

    assert expected in str(caught.value)


def test_a_lane_answers_for_pictures_of_any_size(tmp_path: Path) -> None:
    """What comes out is what the model gives for the rows of the twin, one by one."""
    model = write_network(tmp_path / "model.onnx", width=4, blocks=(1,), side=16, classes=5)
    config = tmp_path / "config.toml"
    config.write_text(
        "[lane.net]\nmodel = 'model.onnx'\nmax_encoded_bytes = 200_000\nmax_pixels = 60_000\n[lane.net.decode]\nuse = 'image'\n"
        "[lane.net.preprocess]\nuse = 'resize'\nmean = [120, 110, 100]\nscale = [0.017]\n"
    )
    numbers = np.random.default_rng(0)
    pictures = [numbers.integers(0, 256, (*size, 3), np.uint8) for size in ((16, 16), (1, 1), (240, 250), (7, 90))]

    with Pipeline(config) as embedded:
        outcomes = embedded.infer_many("net", [{"image": picture} for picture in pictures])

    spec = ResizeSpec(16, 16, 3, DType.FP32, (120.0, 110.0, 100.0), (0.017,) * 3)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for picture, outcome in zip(pictures, outcomes, strict=True):
        row = np.empty((1, 3, 16, 16), np.float32)
        resize_rows(spec, [picture], row)
        (expected,) = session.run(None, {"image": row})
        assert isinstance(outcome, dict)
        assert np.allclose(outcome["scores"], expected, rtol=1e-5)
