"""The engine orders what it queues: right in every order that a device may choose; each planted fault is seen in every seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_rig import FAULTS, is_found

from bench.order_stress import SHAPES, SumModel, answer, fake_engine, run_random
from schemas.status import Code, ConfigError, RequestError
from stages.device import Block
from stages.device_fake import FakeDevice
from stages.device_host import HostDevice
from stages.engine import Engine


def test_the_engine_is_right_in_200_orders() -> None:
    """Every answer, and no source of an upload is touched before its time."""
    assert {seed: wrong for seed in range(200) if (wrong := run_random(fake_engine, seed, batches=30))} == {}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_planted_fault_is_seen_in_each_of_50_seeds(kind: type[Engine]) -> None:
    """A fault that shows now and then would be found by a customer."""
    assert [seed for seed in range(50) if not is_found(kind, seed)] == []


def test_the_same_engine_is_right_on_the_cpu() -> None:
    """One flight, exact batches, no staging."""

    def make(_: int) -> Engine:
        return Engine(SumModel(), HostDevice(), max_batch_size=8)

    assert [run_random(make, seed) for seed in range(5)] == [[]] * 5


def test_batches_run_in_powers_of_two_and_at_most_whole() -> None:
    """Other sizes would each have a price of their own; the largest is the lane's own."""
    engine = Engine(SumModel(), FakeDevice(0), max_batch_size=6)
    buckets = []
    for rows in range(1, 7):
        flight = engine.open(rows, SHAPES)
        buckets.append(flight.bucket)
        engine.abort(flight)

    assert buckets == [1, 2, 4, 4, 6, 6]


def test_warm_up_binds_every_size_on_every_flight() -> None:
    """So that no request meets a size for the first time; afterwards no memory is taken any more."""
    device = FakeDevice(0)
    engine = Engine(SumModel(), device, max_batch_size=6, flights=3)
    before = device.pool_bytes

    assert sorted(engine.warm_up()) == [1, 2, 4, 6]
    assert [sorted(bucket for bucket, _ in flight._bindings) for flight in engine._free] == [[1, 2, 4, 6]] * 3
    assert device.pool_bytes == before


def test_two_flights_are_on_their_way_at_once_and_land_in_order() -> None:
    """The second is filled and launched before the first has landed."""
    engine = fake_engine(3)
    rows = [np.full((2, 48), 1, np.uint32), np.full((2, 48), 2, np.uint32)]
    flights = []
    for x in rows:
        flight = engine.open(2, SHAPES)
        flight.inputs["x"][...] = x
        flight.inputs["z"].fill(0)
        engine.launch(flight)
        flights.append(flight)

    assert not engine.has_room
    for x, flight in zip(rows, flights, strict=True):
        engine.wait()
        assert engine.land() is flight
        assert np.array_equal(flight.outputs()["y"], answer(x, np.zeros((2, 2), np.uint32)))


@pytest.mark.parametrize("seed", range(20))
def test_an_engine_is_closed_when_what_flies_has_landed(seed: int) -> None:
    """An interrupt may have come between the launch and the landing; the buffers go when nothing uses them any more."""
    engine = fake_engine(seed)
    for _ in range(2):
        engine.launch(engine.open(3, SHAPES))
    engine.close()

    assert isinstance(engine.device, FakeDevice)
    assert engine.device.races == []


class FreeModel(SumModel):
    """The model with rows of x of any width."""

    inputs = (replace(SumModel.inputs[0], shape=(-1, -1)), SumModel.inputs[1])


class Counting(FakeDevice):
    """A device that remembers how much was taken when more was asked for."""

    def block(self, nbytes: int) -> Block:
        self.before = self.pool_bytes
        return super().block(nbytes)


def test_a_buffer_that_grows_goes_before_the_larger_one_comes() -> None:
    """So that a pool need not have room for both; nor does what the last batch was bound to hold it."""
    device = Counting(0)
    engine = Engine(FreeModel(), device, max_batch_size=4)
    fixed = device.pool_bytes
    engine.release(engine.open(1, ((100,), SHAPES[1])))
    assert device.pool_bytes == fixed + 512
    engine.release(engine.open(1, ((1000,), SHAPES[1])))

    assert (device.before, device.pool_bytes) == (fixed, fixed + 4096)


class Small(HostDevice):
    """A device without room."""

    def __init__(self, nbytes: int) -> None:
        self._left = nbytes

    def block(self, nbytes: int) -> Block:
        self._left -= nbytes
        if self._left < 0:
            raise MemoryError
        return super().block(nbytes)


def test_buffers_that_do_not_fit_are_refused_at_the_start() -> None:
    """With what to change."""
    with pytest.raises(ConfigError, match=r"sum: 3 flights of 8 rows do not fit .* lower max_batch_size"):
        Engine(SumModel(), Small(4000), max_batch_size=8, flights=3)


def test_a_failed_launch_leaves_the_flight_free() -> None:
    """And the next batch is right."""
    device = FakeDevice(0)
    engine = Engine(SumModel(), device, max_batch_size=4)
    ones = {"x": np.ones((3, 48), np.uint32), "z": np.ones((3, 2), np.uint32)}
    device.fails_next = True
    with pytest.raises(RequestError) as caught:
        engine.call(ones)

    assert caught.value.code is Code.MODEL_FAILED
    assert np.array_equal(engine.call(ones)["y"], answer(ones["x"], ones["z"]))
