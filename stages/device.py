"""What the engine may do to memory and time, and what a model is to it. No device is named here but by protocol.

A device has three streams. Work queued on one is done in order; between streams nothing is ordered but by :meth:`Device.after`.
On a CPU all of it is done at once, in the caller's thread. One engine runs on every device, so the rules hold for all of them:

- the source of an upload stays as it is until the upload is done, the target of a download is read when it is done;
- a mark stands for its last ``record``; ``after`` and ``wait`` mean the record that was the last when they were called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from schemas.tensors import DType, TensorSpec

Array: TypeAlias = NDArray[Any]
Bytes: TypeAlias = NDArray[np.uint8]
# Shape of one row (without the first dimension) of each input, in the order of the model's inputs.
RowShapes: TypeAlias = tuple[tuple[int, ...], ...]
# A point in a stream's work; what it is is the device's own matter.
Mark: TypeAlias = Any


class Stream(IntEnum):
    """The three queues of a device."""

    UPLOAD = 0
    COMPUTE = 1
    DOWNLOAD = 2


@dataclass(frozen=True, slots=True)
class Block:
    """Memory of one buffer: *host*, flat uint8, is the CPU's side, *address* the device's. On a CPU both are the same bytes.

    *owner* keeps the device's side alive, where that is not *host*.
    """

    host: Bytes
    address: int
    owner: object = None


@dataclass(frozen=True, slots=True)
class Bound:
    """A tensor of a batch where the model reads or writes it; *shape* has the bucket's rows first."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    block: Block
    nbytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.nbytes // self.shape[0]


class Call(Protocol):
    """A model bound to the buffers of one flight, for one bucket."""

    outputs: Sequence[Bound]

    def run(self) -> None:
        """Run on the device's compute stream: queue it there, or do it at once where there is none.

        Raises:
            RequestError: MODEL_FAILED, with the model's message. Something of it may be queued nevertheless.
        """

    def allocated(self) -> Mapping[str, Array]:
        """Return, after a run, the outputs for which the engine gave no memory, with the bucket's rows first."""


class Model(Protocol):
    """What the engine runs: an ONNX model, or anything else that reads and writes bound buffers.

    *sized* names the outputs whose shape follows from the number of rows; the engine gives memory for them, the model for the
    others. *example* are shapes to warm up with where the inputs leave them free and the model knows the largest.
    """

    name: str
    example: RowShapes | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sized: frozenset[str]

    def bind(self, inputs: Sequence[Bound], outputs: Sequence[Bound]) -> Call:
        """Return the model bound to these buffers: all inputs, and the sized outputs."""


class Device(Protocol):
    """Where a model runs. Owned by one thread, which makes every call.

    Attributes:
        kind: "cpu", "cuda" or "fake".
        pads: whether batches run in sizes of powers of two, because each other size has its price; else exactly as they are.
        direct_bytes: rows from this size on are uploaded one by one from adopted memory, smaller ones gathered first.
        pool_bytes, pinned_bytes: memory taken on the device and, page-locked, on the host.
        registered_bytes: adopted memory.
    """

    kind: str
    pads: bool
    direct_bytes: int

    @property
    def pool_bytes(self) -> int: ...

    @property
    def pinned_bytes(self) -> int: ...

    @property
    def registered_bytes(self) -> int: ...

    def block(self, nbytes: int) -> Block:
        """Return memory of its own; it lives as long as the block.

        Raises:
            MemoryError: there is no room for it.
        """

    def adopt(self, memory: Bytes) -> bool:
        """Make *memory*, which outlives the device, readable for uploads from where it lies; False = gather from it."""

    def has_adopted(self, source: Array) -> bool:
        """Return True when *source* lies in adopted memory."""

    def upload(self, block: Block, nbytes: int) -> None:
        """Queue the copy of the first *nbytes* of a block's host side to its device side."""

    def upload_row(self, block: Block, offset: int, source: Array) -> None:
        """Queue the copy of *source*, C-contiguous in adopted memory, to *offset* bytes into a block's device side."""

    def clear(self, block: Block, start: int, end: int) -> None:
        """Queue, among the uploads, zeros for the bytes *start* to *end* of a block's device side."""

    def run(self, call: Call) -> None:
        """Have *call* run on the compute stream. Raises what it raises."""

    def download(self, block: Block, nbytes: int) -> None:
        """Queue the copy of the first *nbytes* of a block's device side to its host side."""

    def new_mark(self) -> Mark:
        """Return a mark that is done as long as it was never recorded."""

    def record(self, stream: Stream, mark: Mark) -> None:
        """Put *mark* behind all that is queued on *stream* so far."""

    def after(self, stream: Stream, mark: Mark) -> None:
        """Hold back what is queued on *stream* from now on until *mark* is done."""

    def is_done(self, mark: Mark) -> bool:
        """Return whether all before *mark* is done. Never waits."""

    def wait(self, mark: Mark) -> None:
        """Sleep until *mark* is done."""

    def close(self) -> None:
        """Give memory and registrations back; nothing may be queued any more."""
