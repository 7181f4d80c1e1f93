"""The CPU as a device: both sides of a block are the same bytes, every copy is none, and what is queued is done."""

from __future__ import annotations

import sys

import numpy as np

from .device import Array, Block, Bytes, Call, Mark, Stream


class HostDevice:
    """The CPU; see :class:`stages.device.Device`."""

    kind = "cpu"
    # A batch costs what its rows cost: padding 5 rows to 8 took 61.7 ms instead of 38.8.
    pads = False
    # A row is always copied next to its batch mates: there is no upload that it could take instead.
    direct_bytes = sys.maxsize
    pool_bytes = 0
    pinned_bytes = 0
    registered_bytes = 0

    def block(self, nbytes: int) -> Block:
        """Return private memory; pages that are never touched cost nothing."""
        host = np.empty(nbytes, np.uint8)
        return Block(host, host.ctypes.data)

    def adopt(self, memory: Bytes) -> bool:
        return False

    def has_adopted(self, source: Array) -> bool:
        return False

    def upload(self, block: Block, nbytes: int) -> None:
        raise AssertionError("the model reads what was gathered")

    def upload_row(self, block: Block, offset: int, source: Array) -> None:
        raise AssertionError("nothing is adopted")

    def clear(self, block: Block, start: int, end: int) -> None:
        block.host[start:end] = 0

    def run(self, call: Call) -> None:
        call.run()

    def download(self, block: Block, nbytes: int) -> None:
        raise AssertionError("the model writes where it is read")

    def new_mark(self) -> Mark:
        return None

    def record(self, stream: Stream, mark: Mark) -> None:
        """Do nothing: what was queued is done."""

    def after(self, stream: Stream, mark: Mark) -> None:
        """Do nothing: what was queued is done."""

    def is_done(self, mark: Mark) -> bool:
        return True

    def wait(self, mark: Mark) -> None:
        """Do nothing: what was queued is done."""

    def close(self) -> None:
        """Do nothing: memory goes with its blocks."""
