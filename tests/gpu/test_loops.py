"""The loops and the network with which a GPU is measured, on the CPU: what they compute is right before it is timed anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from bench.gpu.loops import per_second, percentiles_us, pipelined
from bench.gpu.network import write_network
from bench.order_stress import SumModel, answer
from schemas.tensors import DType, TensorSpec
from stages.device import Bound, Call
from stages.device_fake import FakeDevice
from stages.device_host import HostDevice
from stages.engine import Engine
from stages.onnx_model import read_model


class OneInput(SumModel):
    """The stress test's model with its first input alone."""

    inputs = (SumModel.inputs[0],)

    def bind(self, inputs: Sequence[Bound], outputs: Sequence[Bound]) -> Call:
        """Let it stand for the second input too."""
        return super().bind([*inputs, *inputs], outputs)


def test_batches_come_back_in_order_whatever_the_device_does() -> None:
    """More batches than flights, of several sizes, on a device that does everything late."""
    numbers = np.random.default_rng(0)
    batches = [list(numbers.integers(0, 1 << 32, (count, 48), np.uint32)) for count in (8, 1, 5, 8, 3, 2, 7)]
    engine = Engine(OneInput(), FakeDevice(3), max_batch_size=8, flights=2)

    results = pipelined(engine, batches)

    expected = [answer(np.stack(rows), np.stack(rows)) for rows in batches]
    assert [len(result) for result in results] == [8, 1, 5, 8, 3, 2, 7]
    assert all(np.array_equal(result, right) for result, right in zip(results, expected, strict=True))


def test_the_network_has_the_shape_of_resnet_50(tmp_path: Path) -> None:
    """53 convolutions and 25 million weights, read by onnxruntime; a small one runs and its rows are finite and differ."""
    large = write_network(tmp_path / "large.onnx")
    small = write_network(tmp_path / "small.onnx", width=8, blocks=(1, 1), side=32, classes=10)

    assert 100e6 < large.stat().st_size < 105e6
    model = read_model(small, max_batch_size=4)
    assert model.inputs == (TensorSpec("image", DType.FP32, (-1, 3, 32, 32)),)
    assert model.sized == {"scores"}
    images = np.random.default_rng(0).standard_normal((4, 3, 32, 32)).astype(np.float32)
    engine = Engine(model, HostDevice(), max_batch_size=4)
    (scores,) = pipelined(engine, [list(images)])
    session = onnxruntime.InferenceSession(str(small), providers=["CPUExecutionProvider"])
    assert np.allclose(scores, session.run(None, {"image": images})[0], rtol=1e-4)
    assert np.isfinite(scores).all()
    assert len(np.unique(scores[:, 0])) == 4


def test_rates_and_percentiles_are_of_the_work_that_was_done() -> None:
    """Counted in items per second, and in microseconds of one call."""
    calls: list[int] = []
    rate = per_second(lambda: calls.append(1), items=10, seconds=0.05)
    spread = percentiles_us(lambda: calls.append(1), times=100)

    assert rate > 0
    assert len(calls) > 101
    assert 0 <= spread["p50"] <= spread["p99"]
