"""The part of cupy that the CUDA device uses, over the fake device's streams: its calls are carried out as late as they may be.

It shows that the right calls go to the right streams. What the real ones do is for ``bench/gpu_check.py`` to show.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from bench.order_stress import SumModel
from stages.device import Bound, Bytes, Call, Stream
from stages.device_fake import FakeDevice

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


class CUDARuntimeError(RuntimeError):
    """An error of the runtime with its code."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


class FakeCupy:
    """Stands for the module; *refuses* makes ``hostRegister`` fail from that call on."""

    def __init__(self, seed: int, *, refuses: int = 1 << 30, limit: int = 1 << 30) -> None:
        self.device = FakeDevice(seed)
        self.current: int | None = None
        self.registered: dict[int, int] = {}
        self.ever_registered = 0
        self._pinned: list[Bytes] = []
        self._streams = 0
        self._calls_left = refuses
        self._limit = limit
        self.runtime = SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError, memcpyHostToDevice=HOST_TO_DEVICE, memcpyDeviceToHost=DEVICE_TO_HOST,
            memcpyAsync=self._copy, memsetAsync=self._set, hostRegister=self._register, hostUnregister=self.registered.pop,
            memGetInfo=lambda: (1 << 33, 1 << 34),
        )  # fmt: skip
        self.cuda = SimpleNamespace(
            runtime=self.runtime, Device=lambda index: SimpleNamespace(use=lambda: None), Stream=self._stream,
            MemoryPool=lambda: FakePool(self.device, self._limit), Event=lambda block, disable_timing: FakeEvent(self.device),
            PinnedMemory=self._pin, PinnedMemoryPointer=lambda memory, offset: memory, set_allocator=lambda allocator: None,
        )  # fmt: skip

    def queue(self, stream: int, target: Bytes, do: Any) -> None:
        """Have something done on *stream* some time."""
        self.device._queue(Stream(stream), (target,), do)

    def _pin(self, nbytes: int) -> Any:
        """Return page-locked memory. It is kept when given back, so that what comes too late does not crash, but is told."""
        memory: Bytes = np.full(nbytes, 0xA5, np.uint8)
        self._pinned.append(memory)
        lent = (ctypes.c_uint8 * nbytes).from_buffer(memory)
        weakref.finalize(lent, self.device._given_back, memory)
        return lent

    def _stream(self, non_blocking: bool) -> FakeStream:
        self._streams += 1
        return FakeStream(self, self._streams - 1)

    def _copy(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        assert (kind, stream) in ((HOST_TO_DEVICE, Stream.UPLOAD), (DEVICE_TO_HOST, Stream.DOWNLOAD))
        to, come_from = memory_at(target, nbytes), memory_at(source, nbytes)
        if kind == HOST_TO_DEVICE:
            self.device._upload(come_from, to)
        else:
            self.queue(stream, to, lambda: np.copyto(to, come_from))

    def _set(self, target: int, value: int, nbytes: int, stream: int) -> None:
        to = memory_at(target, nbytes)
        self.queue(stream, to, lambda: to.fill(value))

    def _register(self, address: int, nbytes: int, flags: int) -> None:
        self._calls_left -= 1
        if self._calls_left < 0:
            raise CUDARuntimeError(801)
        assert nbytes > 0
        self.registered[address] = nbytes
        self.ever_registered += nbytes


class FakeStream:
    """A stream; its address is its number, and never 0 for the compute stream."""

    def __init__(self, cupy: FakeCupy, number: int) -> None:
        self._cupy = cupy
        self.ptr = number

    def __enter__(self) -> None:
        """Make it the current one."""
        self._cupy.current = self.ptr

    def __exit__(self, *_: object) -> None:
        """Have none current."""
        self._cupy.current = None

    def wait_event(self, event: FakeEvent) -> None:
        """Hold back what comes after."""
        self._cupy.device.after(Stream(self.ptr), event.mark)

    def synchronize(self) -> None:
        """Wait for all that is queued."""
        mark = self._cupy.device.new_mark()
        self._cupy.device.record(Stream(self.ptr), mark)
        self._cupy.device.wait(mark)


class FakeEvent:
    """An event."""

    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self.mark = device.new_mark()

    @property
    def done(self) -> bool:
        """Whether all before it is done."""
        return self._device.is_done(self.mark)

    def record(self, stream: FakeStream) -> None:
        """Put it behind all that is queued."""
        self._device.record(Stream(stream.ptr), self.mark)

    def synchronize(self) -> None:
        """Wait for it."""
        self._device.wait(self.mark)


class FakeMemory:
    """What a pool gives; its memory goes back to the pool with it."""

    def __init__(self, memory: Bytes) -> None:
        self.ptr = memory.ctypes.data


class FakePool:
    """A pool with a limit: what is given back is there for the next who asks for as much, as cupy does it."""

    def __init__(self, device: FakeDevice, limit: int) -> None:
        self._device = device
        self._left, self._taken = limit, 0
        self._memory: list[Bytes] = []
        self._given_back: list[Bytes] = []

    def set_limit(self, size: int) -> None:
        """Take the lower limit."""
        self._left = min(self._left, size)

    def malloc(self, nbytes: int) -> FakeMemory:
        """Return memory, or raise as cupy does."""
        memory = next((known for known in self._given_back if len(known) == nbytes), None)
        if memory is None:
            memory = self._new(nbytes)
        else:
            self._given_back = [known for known in self._given_back if known is not memory]
        given = FakeMemory(memory)
        weakref.finalize(given, self._take_back, memory)
        return given

    def _new(self, nbytes: int) -> Bytes:
        if nbytes > self._left:
            raise MemoryError("out of memory")
        self._left -= nbytes
        self._taken += nbytes
        memory: Bytes = np.full(nbytes, 0xA5, np.uint8)
        self._memory.append(memory)
        return memory

    def _take_back(self, memory: Bytes) -> None:
        self._device._given_back(memory)
        memory.fill(0xA5)
        self._given_back.append(memory)

    def total_bytes(self) -> int:
        """Return what was taken."""
        return self._taken

    def free_all_blocks(self) -> None:
        """Give nothing back: late writes shall be seen, not crash."""


class QueuedSumModel(SumModel):
    """The stress test's model as work on the current stream."""

    def __init__(self, cupy: FakeCupy) -> None:
        self._cupy = cupy

    def bind(self, inputs: Sequence[Bound], outputs: Sequence[Bound]) -> Call:
        call = super().bind(inputs, outputs)
        target, real = memory_at(outputs[0].block.address, outputs[0].nbytes), call.run

        def run() -> None:
            assert self._cupy.current == Stream.COMPUTE
            self._cupy.queue(self._cupy.current, target, real)

        call.run = run  # type: ignore[method-assign]
        return call


def memory_at(address: int, nbytes: int) -> Bytes:
    """Return the bytes at an address."""
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)
