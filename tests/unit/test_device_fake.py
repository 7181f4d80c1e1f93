"""The fake device does what is queued in every order that the rules allow, and in no other."""

from __future__ import annotations

import numpy as np
import pytest

from stages.device import Block, Stream
from stages.device_fake import UNWRITTEN, FakeDevice

SEEDS = range(50)


def filled(device: FakeDevice, value: int) -> Block:
    """Return a block of 8 bytes whose host side is *value*."""
    block = device.block(8)
    block.host.fill(value)
    return block


def on_device(device: FakeDevice, block: Block) -> list[int]:
    """Return the device's side of a block."""
    return device._memory[block.address][:8].tolist()


def finish(device: FakeDevice, *streams: Stream) -> None:
    """Wait for all that is queued on *streams*."""
    for stream in streams:
        mark = device.new_mark()
        device.record(stream, mark)
        device.wait(mark)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_keeps_its_order(seed: int) -> None:
    """What was queued last is there at the end."""
    device = FakeDevice(seed)
    block = filled(device, 1)
    device.upload(block, 8)
    device.clear(block, 2, 8)
    finish(device, Stream.UPLOAD)

    assert on_device(device, block) == [1, 1, 0, 0, 0, 0, 0, 0]


def test_streams_overtake_each_other_unless_one_waits() -> None:
    """A download behind an upload gets it each time with ``after``, and only in some seeds without."""

    def got(seed: int, *, waits: bool) -> int:
        device = FakeDevice(seed)
        block, mark = filled(device, 7), device.new_mark()
        device.upload(block, 8)
        device.record(Stream.UPLOAD, mark)
        if waits:
            device.after(Stream.DOWNLOAD, mark)
        device.download(block, 8)
        finish(device, Stream.DOWNLOAD)
        return int(block.host[0])

    assert {got(seed, waits=True) for seed in SEEDS} == {7}
    assert len({got(seed, waits=False) for seed in SEEDS}) > 1


def test_a_mark_stands_for_its_last_record() -> None:
    """As an event of CUDA does: who waited before waits for the record that was the last then."""
    device = FakeDevice(0)
    mark = device.new_mark()
    assert device.is_done(mark)
    device.record(Stream.UPLOAD, mark)
    device.after(Stream.COMPUTE, mark)
    device.record(Stream.DOWNLOAD, mark)
    finish(device, Stream.COMPUTE)
    device.wait(mark)

    assert device.is_done(mark)


def test_a_source_that_changes_too_early_is_told() -> None:
    """Also when nobody looks at what was uploaded."""
    told = 0
    for seed in SEEDS:
        device = FakeDevice(seed)
        block = filled(device, 1)
        device.upload(block, 8)
        block.host.fill(2)
        finish(device, Stream.UPLOAD)
        told += len(device.races)

    assert 0 < told <= len(SEEDS)


def test_rows_are_read_from_adopted_memory_alone() -> None:
    """Beside it is beside it."""
    device = FakeDevice(0)
    memory = np.zeros(64, np.uint8)
    assert device.adopt(memory[16:48])

    assert device.has_adopted(memory[16:48])
    assert not device.has_adopted(memory[15:20])
    assert not device.has_adopted(memory[40:49])


def test_waiting_for_what_nobody_will_do_is_an_error_and_no_hang() -> None:
    """Two streams that wait for each other."""
    device = FakeDevice(0)
    one, other = device.new_mark(), device.new_mark()
    block = device.block(8)
    device.record(Stream.UPLOAD, one)
    device.after(Stream.COMPUTE, one)
    device._streams[Stream.UPLOAD].clear()
    device.record(Stream.COMPUTE, other)
    with pytest.raises(AssertionError, match="nothing can go on"):
        device.wait(other)

    device.poison(block)
    assert on_device(device, block) == [UNWRITTEN] * 8
