"""A device without a GPU that does its work as late, as early and as mixed as the rules of ``device.py`` allow. For tests alone.

What is queued waits until the seed lets it be done, in an order that it decides, held back by nothing but ``after``. Every copy
and every run spoils its target first and fills it some steps later, as work under way does. So what waits for too little reads
spoiled bytes here, whereas on a real device it might be right a thousand times. Memory of the device is apart from the
host's, and what is given back while work on it is queued is told, though nothing else may have come to lie there yet.
"""

from __future__ import annotations

import ctypes
import random
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schemas.status import Code, RequestError

from .device import Array, Block, Bytes, Call, Mark, Stream

# Bytes that no test expects anywhere: of memory nobody wrote, and of a target whose work is under way.
UNWRITTEN, UNDER_WAY = 0xA5, 0xFF
# How a stream is favoured: it may run far ahead of the others, or nearly stand still. And how often anything is done while the
# host is busy: never, so that all is as late as it can be, or nearly always.
_WEIGHTS = (0.01, 0.2, 1.0, 30.0)
_HASTE = (0.0, 0.1, 0.3, 0.8)


@dataclass(slots=True)
class _Point:
    """One record of a mark."""

    is_done: bool = False


@dataclass(slots=True)
class FakeMark:
    """A mark; *last* is its last record."""

    last: _Point = field(default_factory=lambda: _Point(is_done=True))


@dataclass(frozen=True, slots=True)
class _Entry:
    """One step of a stream: a point to wait for, a point to set, or something to do with the memory that it *touches*."""

    waits_for: _Point | None = None
    sets: _Point | None = None
    do: Callable[[], object] | None = None
    touches: tuple[Bytes, ...] = ()


class _DeviceSide:
    """What a block owns of the device: it goes with the block."""


class FakeDevice:
    """A device made of host memory and disorder; see :class:`stages.device.Device`.

    Args:
        seed: decides every order.
        direct_bytes: as of :class:`stages.device.Device`.

    Attributes:
        races: in words, what was changed between the call that queued its upload and the upload, and what was given back with
            work on it queued; empty in a right engine.
        fails_next: set it, and the next run fails.
    """

    kind = "fake"
    pads = True
    pinned_bytes = 0

    def __init__(self, seed: int, *, direct_bytes: int = 1) -> None:
        self.direct_bytes = direct_bytes
        self.races: list[str] = []
        self.fails_next = False
        self.pool_bytes = self.registered_bytes = 0
        self._random = random.Random(seed)
        self._streams: list[deque[_Entry]] = [deque() for _ in Stream]
        self._favour()
        self._memory: dict[int, Bytes] = {}
        self._hosts: dict[int, Bytes] = {}
        self._adopted: list[tuple[int, int]] = []

    def block(self, nbytes: int) -> Block:
        """Return two memories. Both are kept as long as the device: what comes too late is seen, and no crash."""
        # A byte at least, so that each has an address of its own.
        host, device = np.full(nbytes + 1, UNWRITTEN, np.uint8), np.full(nbytes + 1, UNWRITTEN, np.uint8)
        self._hosts[host.ctypes.data], self._memory[device.ctypes.data] = host, device
        self.pool_bytes += nbytes
        # Not the memory itself: when the last view of it goes is when page-locked memory would.
        lent: Any = (ctypes.c_uint8 * len(host)).from_buffer(host.data)
        owner = _DeviceSide()
        weakref.finalize(lent, self._given_back, host)
        weakref.finalize(owner, self._free, device, nbytes)
        return Block(np.frombuffer(lent, np.uint8)[:nbytes], device.ctypes.data, owner)

    def adopt(self, memory: Bytes) -> bool:
        self._adopted.append((memory.ctypes.data, memory.nbytes))
        self.registered_bytes += memory.nbytes
        return True

    def has_adopted(self, source: Array) -> bool:
        at = source.ctypes.data
        return any(start <= at and at + source.nbytes <= start + nbytes for start, nbytes in self._adopted)

    def upload(self, block: Block, nbytes: int) -> None:
        self._upload(self._hosts[block.host.ctypes.data][:nbytes], self._memory[block.address][:nbytes])

    def upload_row(self, block: Block, offset: int, source: Array) -> None:
        assert self.has_adopted(source)
        # The same memory as bytes: a copy would not see what is written there later.
        flat: Bytes = np.ndarray(source.nbytes, np.uint8, source.data)
        self._upload(flat, self._memory[block.address][offset : offset + source.nbytes])

    def clear(self, block: Block, start: int, end: int) -> None:
        target = self._memory[block.address][start:end]
        self._queue(Stream.UPLOAD, (target,), lambda: target.fill(0))

    def run(self, call: Call) -> None:
        """Have *call* run some time later; one that fails at once has queued a part of its work before."""
        targets = [self._memory[bound.block.address][: bound.nbytes] for bound in call.outputs]
        if self.fails_next:
            self.fails_next = False
            self._queue(Stream.COMPUTE, targets, lambda: None)
            raise RequestError(Code.MODEL_FAILED, message="the fake device was told to fail")
        self._queue(Stream.COMPUTE, targets, call.run)

    def download(self, block: Block, nbytes: int) -> None:
        target, source = self._hosts[block.host.ctypes.data][:nbytes], self._memory[block.address][:nbytes]
        self._queue(Stream.DOWNLOAD, (target,), lambda: np.copyto(target, source), source)

    def new_mark(self) -> Mark:
        return FakeMark()

    def record(self, stream: Stream, mark: Mark) -> None:
        mark.last = _Point()
        self._streams[stream].append(_Entry(sets=mark.last))
        self._go_on()

    def after(self, stream: Stream, mark: Mark) -> None:
        self._streams[stream].append(_Entry(waits_for=mark.last))
        self._go_on()

    def is_done(self, mark: Mark) -> bool:
        self._go_on()
        # Someone who only looks must get there too.
        if self._random.random() < 0.5:
            self._step()
        return bool(mark.last.is_done)

    def wait(self, mark: Mark) -> None:
        point: _Point = mark.last
        if self._random.random() < 0.5:
            self._hurry(point)
        while not point.is_done:
            if not self._step():
                raise AssertionError("nothing can go on: a stream waits for what was never queued")

    def close(self) -> None:
        for memory in (*self._hosts.values(), *self._memory.values()):
            self._given_back(memory)
        self._memory.clear()

    def poison(self, block: Block) -> None:
        """Spoil both sides of a block that nobody may read any more, and nothing that is queued may touch."""
        for memory in (self._hosts[block.host.ctypes.data], self._memory[block.address]):
            self._given_back(memory)
            memory.fill(UNWRITTEN)

    # --- disorder --------------------------------------------------------------------------------------------------------

    def _given_back(self, memory: Bytes) -> None:
        """Tell when something that is queued touches *memory*."""
        entries = (entry for stream in self._streams for entry in stream)
        if any(np.may_share_memory(memory, touched) for entry in entries for touched in entry.touches):
            self.races.append(f"a buffer of {memory.nbytes - 1} bytes was given back with work on it queued")

    def _free(self, memory: Bytes, nbytes: int) -> None:
        """Take the device's side of a block back."""
        self.pool_bytes -= nbytes
        self._given_back(memory)

    def _upload(self, source: Bytes, target: Bytes) -> None:
        """Queue a copy that notices when its source changes before it is done."""
        queued = source.copy()

        def copy() -> None:
            if not np.array_equal(source, queued):
                self.races.append(f"the source of an upload of {source.nbytes} bytes was changed before it was done")
            np.copyto(target, source)

        self._queue(Stream.UPLOAD, (target,), copy, source)

    def _queue(self, stream: Stream, targets: Sequence[Bytes], do: Callable[[], object], *sources: Bytes) -> None:
        """Queue work in two steps: spoil the targets, then fill them."""
        touches = (*targets, *sources)

        def spoil() -> None:
            for target in targets:
                target.fill(UNDER_WAY)

        self._streams[stream] += (_Entry(do=spoil, touches=touches), _Entry(do=do, touches=touches))
        self._go_on()

    def _favour(self) -> None:
        self._weights = [self._random.choice(_WEIGHTS) for _ in Stream]
        self._haste = self._random.choice(_HASTE)

    def _go_on(self) -> None:
        """Let some work be done while the host is busy: often none, sometimes much."""
        if self._random.random() < 0.05:
            self._favour()
        if self._random.random() < self._haste:
            for _ in range(self._random.randrange(8)):
                self._step()

    def _step(self) -> bool:
        """Do the next step of a stream that can go on; False when none can."""
        ready = [stream for stream in Stream if self._can_go_on(stream)]
        if not ready:
            return False
        (stream,) = self._random.choices(ready, [self._weights[stream] for stream in ready])
        self._take(stream)
        return True

    def _can_go_on(self, stream: Stream) -> bool:
        entries = self._streams[stream]
        return bool(entries) and (entries[0].waits_for is None or entries[0].waits_for.is_done)

    def _take(self, stream: Stream) -> None:
        entry = self._streams[stream].popleft()
        if entry.sets is not None:
            entry.sets.is_done = True
        if entry.do is not None:
            entry.do()

    def _hurry(self, point: _Point) -> None:
        """Do what *point* needs and nothing else, so that all other work is as late as it can be."""
        stream = next((s for s in Stream if any(entry.sets is point for entry in self._streams[s])), None)
        while stream is not None and not point.is_done:
            waits_for = self._streams[stream][0].waits_for
            if waits_for is not None and not waits_for.is_done:
                self._hurry(waits_for)
                if not waits_for.is_done:
                    return
            self._take(stream)
