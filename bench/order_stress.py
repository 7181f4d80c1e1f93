"""Random batches through an engine, each answer compared with what its rows come to, everything that is over overwritten at once.

It finds what reads too early, writes too late or mixes batches: on the fake device in tests, on a real one in ``gpu_check``. The
engine under test runs behind :class:`stages.steps.Infer`, as in a server; slots are rows of one array that the device may read.
"""

from __future__ import annotations

import ctypes
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from schemas.plan import LinkPlan
from schemas.status import Code, RequestError
from schemas.tensors import NUMPY_NAME, DType, TensorSpec
from stages.device import Array, Bound, Bytes, Call
from stages.device_fake import FakeDevice
from stages.engine import Engine
from stages.steps import Infer

MAX_BATCH_SIZE, FLIGHTS, SLOTS, MAX_ROWS = 8, 2, 12, 3
# x is large enough to be read from where it lies, z is gathered.
DIRECT_BYTES = 100
WIDTH, Z_WIDTH, Y_WIDTH = 48, 2, 5
SHAPES = ((WIDTH,), (Z_WIDTH,))
# What lies in a slot that is nobody's.
NOBODYS = 0x5A
# Of all batches of several requests, so many fail when they are launched, and so many while they are gathered.
FAILING, TORN = 0.3, 0.25

Numbers: TypeAlias = NDArray[np.uint32]
MakeEngine: TypeAlias = Callable[[int], Engine]


def answer(x: Numbers, z: Numbers) -> Numbers:
    """Return y for a batch: each of its values depends on every row of the batch, and padding of zeros changes none."""
    total = np.uint32((int(x.sum(dtype=np.uint64)) * 7 + int(z.sum(dtype=np.uint64)) * 11) & 0xFFFFFFFF)
    y: Numbers = x[:, :Y_WIDTH] * np.uint32(3) + z[:, :1] + total
    return y


class SumModel:
    """A model that mixes all rows of its batch, on any device whose memory the CPU can read; see :class:`stages.device.Model`."""

    name = "sum"
    example = None
    inputs = (TensorSpec("x", DType.UINT32, (-1, WIDTH)), TensorSpec("z", DType.UINT32, (-1, Z_WIDTH)))
    outputs = (TensorSpec("y", DType.UINT32, (-1, Y_WIDTH)),)
    sized = frozenset({"y"})

    def bind(self, inputs: Sequence[Bound], outputs: Sequence[Bound]) -> Call:
        """Return the model over views of these buffers."""
        return _SumCall([view_at(bound) for bound in inputs], view_at(outputs[0]), outputs)


class _SumCall:
    def __init__(self, inputs: list[Array], output: Array, outputs: Sequence[Bound]) -> None:
        self.outputs = outputs
        self._inputs = inputs
        self._output = output

    def run(self) -> None:
        x, z = self._inputs
        self._output[...] = answer(x, z)

    def allocated(self) -> Mapping[str, Array]:
        return {}


def view_at(bound: Bound) -> Array:
    """Return the device's side of a tensor as an array."""
    memory = (ctypes.c_uint8 * bound.nbytes).from_address(bound.block.address)
    return np.ndarray(bound.shape, NUMPY_NAME[bound.dtype], memory)


def fake_engine(seed: int, kind: type[Engine] = Engine) -> Engine:
    """Return an engine on a fake device of its own."""
    return kind(SumModel(), FakeDevice(seed, direct_bytes=DIRECT_BYTES), max_batch_size=MAX_BATCH_SIZE, flights=FLIGHTS)


class Slots:
    """The slots of a lane as a link: x and z of up to MAX_ROWS rows each, and what was answered."""

    plan = LinkPlan("slots", (), 0, shared=True, static=False)

    def __init__(self) -> None:
        self.memory: Bytes = np.full(SLOTS * MAX_ROWS * 4 * (WIDTH + Z_WIDTH), NOBODYS, np.uint8)
        every = self.memory.view(np.uint32)
        border = SLOTS * MAX_ROWS * WIDTH
        self._x = every[:border].reshape(SLOTS, MAX_ROWS, WIDTH)
        self._z = every[border:].reshape(SLOTS, MAX_ROWS, Z_WIDTH)
        self._rows = [0] * SLOTS
        self.fails_next = False
        self.answers: dict[int, Array] = {}

    def fill(self, slot: int, x: Numbers, z: Numbers) -> None:
        """Put a request into *slot*."""
        self._rows[slot] = len(x)
        self._x[slot, : len(x)] = x
        self._z[slot, : len(z)] = z

    def free(self, slot: int) -> None:
        """Write over a slot as its next request would."""
        for tensor in (self._x, self._z):
            tensor[slot].view(np.uint8).fill(NOBODYS)

    def read(self, slot: int) -> dict[str, Array]:
        return {"x": self._x[slot, : self._rows[slot]], "z": self._z[slot, : self._rows[slot]]}

    def rows(self, name: str, slots: Sequence[int]) -> list[Array]:
        return [self.read(slot)[name] for slot in slots]

    def gather(self, name: str, slots: Sequence[int], out: Array) -> None:
        if self.fails_next:
            self.fails_next = False
            raise RequestError(Code.BAD_SHAPE, message="the slots were told to fail")
        np.concatenate(self.rows(name, slots), out=out)

    def scatter(self, slots: Sequence[int], rows: Sequence[int], outputs: Mapping[str, Array]) -> list[RequestError | None]:
        ends = np.cumsum(rows).tolist()
        for slot, count, end in zip(slots, rows, ends, strict=True):
            self.answers[slot] = outputs["y"][end - count : end].copy()
        return [None] * len(slots)


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch of requests: which slots, and the content of each."""

    slots: list[int]
    contents: list[tuple[Numbers, Numbers]]

    @property
    def rows(self) -> list[int]:
        """Rows of each request."""
        return [len(x) for x, _ in self.contents]


class _Stress:
    """One run: owns the slots and knows what each answer must be."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._slots = Slots()
        self._free = list(range(SLOTS))
        self._engine = engine
        self._fake = engine.device if isinstance(engine.device, FakeDevice) else None
        spoil_what_is_released(engine)
        self._infer = Infer(self._slots, self._slots, engine)  # type: ignore[arg-type]
        self._infer.adopt(self._slots.memory)
        self._air: deque[_Batch] = deque()
        self._again: list[_Batch] = []
        self._wrong: list[str] = []

    def run(self, batches: int) -> list[str]:
        """Have so many batches answered; return what was wrong with the first that was, or with the order of things."""
        while not self._found() and (batches or self._air or self._again):
            may_launch = self._engine.has_room and bool(self._again or (batches and self._free))
            if not may_launch or (self._air and self._random.random() < 0.4):
                self._look()
            elif self._again:
                self._launch(self._again.pop())
            else:
                batches -= 1
                self._launch(self._new_batch())
        return self._found()

    def close(self) -> list[str]:
        """Close the engine, before the slots' memory goes; return what was still queued."""
        self._engine.close()
        return self._found()

    def _found(self) -> list[str]:
        return self._wrong + (self._fake.races if self._fake else [])

    def _new_batch(self) -> _Batch:
        """Return requests of 1 to MAX_ROWS rows that fit into one batch, in random free slots."""
        self._random.shuffle(self._free)
        left, slots, contents = self._random.randint(1, MAX_BATCH_SIZE), [], []
        while left and self._free:
            rows = min(left, self._random.randint(1, MAX_ROWS))
            left -= rows
            slots.append(self._free.pop())
            contents.append((self._any(rows, WIDTH), self._any(rows, Z_WIDTH)))
        return _Batch(slots, contents)

    def _any(self, rows: int, width: int) -> Numbers:
        return self._numbers.integers(0, 1 << 32, (rows, width), np.uint32)

    def _launch(self, batch: _Batch) -> None:
        """Launch a batch; when it fails as a whole its slots are written over, and each request comes again alone."""
        if len(batch.slots) > 1:
            self._slots.fails_next = self._random.random() < TORN
            if self._fake is not None:
                self._fake.fails_next = not self._slots.fails_next and self._random.random() < FAILING
        for slot, (x, z) in zip(batch.slots, batch.contents, strict=True):
            self._slots.fill(slot, x, z)
        try:
            self._infer.launch(batch.slots, batch.rows, SHAPES)
        except RequestError:
            for slot, content in zip(batch.slots, batch.contents, strict=True):
                self._slots.free(slot)
                self._again.append(_Batch([slot], [content]))
        else:
            self._air.append(batch)

    def _look(self) -> None:
        """Take what has landed, sometimes by waiting for it, and compare."""
        if self._random.random() < 0.3:
            self._engine.wait()
        elif not self._engine.has_landed:
            return
        self._infer.land()
        batch = self._air.popleft()
        expected = answer(*(np.concatenate(column) for column in zip(*batch.contents, strict=True)))
        got = np.concatenate([self._slots.answers.pop(slot) for slot in batch.slots])
        for row in np.flatnonzero((expected != got).any(axis=1)).tolist():
            self._wrong.append(f"row {row} of a batch of {len(expected)}: expected {expected[row]}, got {got[row]}")
        for slot in batch.slots:
            self._slots.free(slot)
        self._free += batch.slots


def spoil_what_is_released(engine: Engine) -> None:
    """Have the buffers of a flight written over, on the fake device, as soon as it is free."""
    device, release = engine.device, engine.release

    def spoil(flight: Any) -> None:
        if isinstance(device, FakeDevice):
            for block in flight.blocks:
                device.poison(block)
        release(flight)

    engine.release = spoil  # type: ignore[method-assign]


def run_random(make_engine: MakeEngine, seed: int, batches: int = 40) -> list[str]:
    """Run random batches through the engine of ``make_engine(seed)``, and close it; return wrong rows and races, none of a right
    one."""
    stress = _Stress(make_engine(seed), seed)
    return stress.run(batches) or stress.close()
