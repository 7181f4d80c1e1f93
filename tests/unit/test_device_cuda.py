"""What of the CUDA device can be told without a GPU: its arithmetic, its options, and its refusals."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from builders import DEMO
from fake_cupy import FakeCupy, QueuedSumModel

from bench.order_stress import DIRECT_BYTES, FLIGHTS, MAX_BATCH_SIZE, run_random
from schemas.config import GpuConfig, parse_config
from schemas.status import ConfigError, DeviceError
from stages.cuda_engine import check_budget, count_nodes, provider_options
from stages.device_choice import CUDA_PROVIDER
from stages.device_cuda import MAX_DIRECT_BYTES, MIN_DIRECT_BYTES, CudaDevice, break_even, chunks
from stages.engine import Engine
from stages.steps import make_engine

GIB = 1 << 30


def test_memory_is_registered_in_parts_that_every_driver_takes() -> None:
    """Adjacent, nothing twice, nothing empty: zero bytes are an error of the driver's."""
    assert chunks(4096, 100, 40) == [(4096, 40), (4136, 40), (4176, 20)]
    assert chunks(4096, 80, 40) == [(4096, 40), (4136, 40)]
    assert chunks(4096, 0) == []
    assert [nbytes for _, nbytes in chunks(0, 130 * GIB)] == [64 * GIB, 64 * GIB, 2 * GIB]


def test_a_row_is_read_from_where_it_lies_when_its_copy_takes_longer_than_saying_so() -> None:
    """4 us to say so against 13 GB/s is about 50 KiB; a strange measurement does not lead to a strange choice."""
    assert break_even(4000, 1 / 13) == 52_000
    assert break_even(1, 1.0) == MIN_DIRECT_BYTES
    assert break_even(10_000_000, 0.01) == MAX_DIRECT_BYTES
    assert break_even(4000, 0.0) == MAX_DIRECT_BYTES


def test_the_options_of_a_session_are_those_of_the_config() -> None:
    """On our stream, with our limit."""
    gpu = GpuConfig(device_id=3, ort_bytes=5 * GIB, precision="strict", conv_search="exhaustive")
    options = provider_options(gpu, 94_000)

    assert options["device_id"] == "3"
    assert options["user_compute_stream"] == "94000"
    assert options["gpu_mem_limit"] == str(5 * GIB)
    assert (options["use_tf32"], options["cudnn_conv_algo_search"]) == ("0", "EXHAUSTIVE")
    assert provider_options(GpuConfig(), 1)["use_tf32"] == "1"
    assert all(isinstance(value, str) for value in options.values())


def test_budgets_above_what_is_free_are_refused_with_both_numbers() -> None:
    """A tenth is left to what nobody can limit."""
    gpu = GpuConfig(pool_bytes=GIB, ort_bytes=8 * GIB)
    check_budget(gpu, 10 * GIB, key="lane.a.gpu")

    with pytest.raises(
        ConfigError, match=rf"^lane\.a\.gpu: pool_bytes \+ ort_bytes = {9 * GIB} are more than 90% of the \d+ bytes"
    ):
        check_budget(gpu, 10 * GIB - 10, key="lane.a.gpu")


@dataclass(frozen=True)
class Part:
    """A part of a model's graph as onnxruntime tells it."""

    ep_name: str
    nodes: int

    def get_nodes(self) -> Sequence[int]:
        """Return its nodes."""
        return range(self.nodes)


def test_nodes_are_counted_by_whether_they_are_on_the_gpu() -> None:
    """A graph is told in parts."""
    parts = [Part(CUDA_PROVIDER, 5), Part("CPUExecutionProvider", 2), Part(CUDA_PROVIDER, 1)]

    assert count_nodes(parts) == (6, 2)
    assert count_nodes([]) == (0, 0)


def cuda_device(monkeypatch: pytest.MonkeyPatch, cupy: FakeCupy, *, pool_bytes: int = GIB) -> CudaDevice:
    """Return the CUDA device over a stand-in for cupy."""
    monkeypatch.setattr("stages.device_cuda.load_cupy", lambda: cupy)
    device = CudaDevice(0, pool_bytes=pool_bytes)
    device.direct_bytes = DIRECT_BYTES
    return device


@pytest.mark.parametrize("refuses", [1 << 30, 0])
def test_the_engine_is_right_on_the_calls_of_cuda(monkeypatch: pytest.MonkeyPatch, refuses: int) -> None:
    """Each on its stream, in any order that events allow; rows read from where they lie, or gathered where that is refused."""
    for seed in range(40):
        cupy = FakeCupy(seed, refuses=refuses)
        device = cuda_device(monkeypatch, cupy)

        def make(_: int, cupy: FakeCupy = cupy, device: CudaDevice = device) -> Engine:
            return Engine(QueuedSumModel(cupy), device, max_batch_size=MAX_BATCH_SIZE, flights=FLIGHTS)

        assert run_random(make, seed, batches=20) == []
        assert cupy.device.races == []
        assert (cupy.ever_registered > 0) == bool(refuses)
        assert (cupy.registered, device.registered_bytes) == ({}, 0)
        device.close()
        assert (cupy.registered, device.registered_bytes) == ({}, 0)


def test_memory_that_is_registered_in_part_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver refuses the second part: rows of the first must not be read either, nobody would know which is which."""
    monkeypatch.setattr("stages.device_cuda.chunks", lambda address, nbytes: chunks(address, nbytes, 64))
    cupy = FakeCupy(0, refuses=1)
    device = cuda_device(monkeypatch, cupy)
    memory = np.zeros(128, np.uint8)

    assert not device.adopt(memory)
    assert (cupy.registered, device.registered_bytes, device.has_adopted(memory[:8])) == ({}, 0, False)


def test_a_row_across_two_parts_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy has one registration to read from."""
    monkeypatch.setattr("stages.device_cuda.chunks", lambda address, nbytes: chunks(address, nbytes, 64))
    device = cuda_device(monkeypatch, FakeCupy(0))
    memory = np.zeros(160, np.uint8)[16:144]

    assert device.adopt(memory)
    assert device.has_adopted(memory[:64])
    assert device.has_adopted(memory[64:70])
    assert not device.has_adopted(memory[60:70])
    assert not device.has_adopted(np.zeros(8, np.uint8))


def test_pinned_bytes_are_those_of_the_blocks_that_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of exactly the size that was asked for; what measured the copies at start is gone."""
    device = cuda_device(monkeypatch, FakeCupy(0))
    assert device.pinned_bytes == 0
    block = device.block(1000)
    assert (device.pinned_bytes, len(block.host)) == (1000, 1000)

    del block
    assert device.pinned_bytes == 0


def test_a_pool_that_is_too_small_refuses_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """At start, with the keys to change."""
    cupy = FakeCupy(0)
    device = cuda_device(monkeypatch, cupy, pool_bytes=600_000)

    with pytest.raises(ConfigError, match=r"do not fit .*gpu\.pool_bytes"):
        Engine(QueuedSumModel(cupy), device, max_batch_size=1000, flights=2)


def test_a_missing_cupy_is_told_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a lane is to run on a GPU after all checks."""
    monkeypatch.setitem(sys.modules, "cupy", None)

    with pytest.raises(DeviceError, match=r"pip install 'slotline\[gpu\]'"):
        CudaDevice(0, pool_bytes=GIB)
    lane = parse_config('[lane.a]\nmodel = "trading_mlp.onnx"', base=DEMO, source="a.toml").lanes[0]
    with pytest.raises(DeviceError, match="cupy"):
        make_engine(lane, 8, "cuda")


def test_a_gpu_without_a_driver_is_refused_in_one_line() -> None:
    """With cupy installed and no driver; needs the package, and no GPU."""
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    if cupy.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError, match=r"^GPU 0 cannot be used: .*cudaError.*nvidia-smi$"):
        CudaDevice(0, pool_bytes=GIB)


def test_the_gpu_table_is_read_and_its_mistakes_are_named(tmp_path: Path) -> None:
    """It belongs to a lane, whatever the device: the same file serves with and without a GPU."""
    text = "[lane.a]\ndevice = 'auto'\n[lane.a.gpu]\nflights = {}\nprecision = 'strict'"
    (lane,) = parse_config(text.format(3), base=tmp_path, source="a.toml").lanes

    assert (lane.device, lane.gpu) == ("auto", GpuConfig(flights=3, precision="strict"))
    for wrong, line in ((9, "lane.a.gpu.flights = 9: expected a whole number from 1 to 4"), ("3\npol_bytes = 1", "pool_bytes")):
        with pytest.raises(ConfigError, match=line):
            parse_config(text.format(wrong), base=tmp_path, source="a.toml")
