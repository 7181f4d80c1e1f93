"""The kernel in front of a model, in the engine: on the fake device with the kernel's own source as C++, in every order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from bench.gpu.loops import pipelined
from bench.gpu.network import write_network
from bench.gpu.shim import Shim
from schemas.config import parse_config
from schemas.plan import LinkPlan
from schemas.status import ConfigError
from schemas.tensors import DType, TensorSpec
from stages.demo import config_path
from stages.device import Block, Device
from stages.device_fake import FakeDevice
from stages.engine import Engine
from stages.gpu_kernel import ResizeKernel, entry_name
from stages.lane_plan import ModelSpec, build_plan
from stages.onnx_model import read_model
from stages.resize import ResizeSpec, resize_rows
from stages.resized_model import PixelRows, ResizedModel

SIDE, MAX_ROWS, MAX_PIXELS = 16, 4, 3000
SPEC = ResizeSpec(SIDE, SIDE, 3, DType.FP32, (120.0, 110.0, 100.0), (0.017, 0.018, 0.019))
SIZES = ((16, 16), (50, 60), (1, 3000), (7, 9))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small network that takes pictures of SIDE x SIDE."""
    return write_network(tmp_path_factory.mktemp("network") / "n.onnx", width=4, blocks=(1,), side=SIDE, classes=5)


def make_engine(network: Path, shim: Shim, device: Device, flights: int = 2) -> Engine:
    """Return the engine of a lane whose pictures the kernel resizes."""
    kernel = ResizeKernel(SPEC, lambda *launch: shim.launch(entry_name(SPEC), *launch))
    inner = read_model(network, max_batch_size=MAX_ROWS)
    model = ResizedModel(inner, SPEC, kernel, device, max_rows=MAX_ROWS, max_pixels=MAX_PIXELS)
    return Engine(model, device, max_batch_size=MAX_ROWS, flights=flights)


def batches() -> list[list[np.ndarray[Any, Any]]]:
    """Return batches of one to four pictures, each batch of one size."""
    numbers = np.random.default_rng(0)
    counts = (4, 1, 3, 2, 4, 1, 2, 3)
    return [
        [numbers.integers(0, 256, (*SIZES[number % len(SIZES)], 3), np.uint8) for _ in range(count)]
        for number, count in enumerate(counts)
    ]


def expected(network: Path, pictures: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return the scores by the twin and a plain session."""
    rows = np.empty((len(pictures), *SPEC.shape), np.float32)
    resize_rows(SPEC, pictures, rows)
    session = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"image": rows})
    result: np.ndarray[Any, Any] = scores
    return result


@pytest.mark.parametrize("seed", range(20))
def test_pictures_give_what_their_resized_rows_give(network: Path, shim: Shim, seed: int) -> None:
    """Whatever the device does late or early; sizes change from batch to batch, and two batches share the rows' memory."""
    device = FakeDevice(seed)
    engine = make_engine(network, shim, device)
    results = pipelined(engine, batches())

    for pictures, scores in zip(batches(), results, strict=True):
        assert np.allclose(scores, expected(network, pictures), rtol=1e-4, atol=1e-4)
    assert device.races == []


class Full(FakeDevice):
    """A device without room."""

    def block(self, nbytes: int) -> Block:
        raise MemoryError


def test_resized_rows_that_do_not_fit_are_refused_with_what_to_change(network: Path, shim: Shim) -> None:
    """At the start, in one line."""
    with pytest.raises(ConfigError, match=r"4 resized rows do not fit .* raise gpu\.pool_bytes"):
        make_engine(network, shim, Full(0))


def test_a_warm_up_takes_all_the_memory_for_pictures_that_will_ever_be_needed(network: Path, shim: Shim) -> None:
    """Only the small table of a new size is added."""
    device = FakeDevice(0)
    engine = make_engine(network, shim, device)
    assert sorted(engine.warm_up()) == [1, 2, 4]
    before = device.pool_bytes
    pipelined(engine, batches())

    assert device.pool_bytes - before < 20 * MAX_ROWS * len(batches())


class Pictures:
    """A link of pictures."""

    plan = LinkPlan("pixels", (), 0, shared=True, static=False)

    def __init__(self, pictures: list[np.ndarray[Any, Any]]) -> None:
        self._pictures = pictures

    def read(self, slot: int) -> dict[str, np.ndarray[Any, Any]]:
        return {"pixels": self._pictures[slot]}

    def rows(self, name: str, slots: list[int]) -> list[np.ndarray[Any, Any]]:
        return [self._pictures[slot] for slot in slots]


def test_pictures_of_slots_are_rows_of_a_batch() -> None:
    """Read as a batch of one, gathered one beside the other."""
    pictures = batches()[0]
    link = PixelRows(Pictures(pictures))  # type: ignore[arg-type]
    out = np.zeros((2, *SIZES[0], 3), np.uint8)
    link.gather("pixels", [2, 0], out)

    assert link.read(1)["pixels"].shape == (1, *SIZES[0], 3)
    assert np.array_equal(out, np.stack([pictures[2], pictures[0]]))


def plan_steps(on_gpu: bool, more: str = "") -> list[tuple[str, str, int, int]]:
    """Return the steps of a lane with a resize, on a GPU or not."""
    text = f"[lane.a]\nmodel = 'trading_mlp.onnx'\n[lane.a.decode]\nuse = 'image'\n[lane.a.preprocess]\nuse = 'resize'\n{more}"
    config = parse_config(text, base=config_path().parent, source="test.toml")
    scores = TensorSpec("scores", DType.FP32, (-1, 5))
    models = {"a": ModelSpec((TensorSpec("image", DType.FP32, (-1, 3, SIDE, SIDE)),), (scores,))}
    (lane,) = build_plan(config, models, {"a"} if on_gpu else set()).lanes
    return [(step.stage, step.use, step.source, step.target) for step in lane.steps]


def test_on_a_gpu_pixels_go_to_the_model_and_nothing_resizes_before() -> None:
    """On the CPU the preprocess stage does it."""
    assert plan_steps(True)[1:3] == [("preprocess", "none", 1, 1), ("infer", "resize, model", 1, 2)]
    assert plan_steps(False)[1:3] == [("preprocess", "resize", 1, 2), ("infer", "model", 2, 3)]


@pytest.mark.parametrize("on_gpu", [True, False])
def test_what_does_not_fit_is_refused_on_both(on_gpu: bool) -> None:
    """By the same key."""
    with pytest.raises(ConfigError, match=r"lane\.a\.preprocess\.height: the model takes 16, not 99"):
        plan_steps(on_gpu, "height = 99\n")
