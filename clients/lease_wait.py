"""Leases whose frames can be waited for: in the thread of a Client, or in the event loop of an AsyncClient."""

from __future__ import annotations

import asyncio
import mmap
import time
from typing import Self

from schemas.arguments import timeout_ns
from schemas.leases import Answer

from .leases import Frame, Lease
from .line import Line

_NS_PER_S = 1_000_000_000


class BlockingLease(Lease):
    """A lease of a Client; ``with`` closes it."""

    def __init__(self, answer: Answer, memory: mmap.mmap, line: Line, timeout_s: float) -> None:
        super().__init__(answer, memory)
        self._line = line
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        """Return the lease; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the lease."""
        self.close()

    def close(self) -> None:
        """Give the region back as soon as no array of its frames is left, and no request uses it."""
        self._line.session.leases.remove(self)
        super().close()

    def frame(self, timeout_s: float | None = None) -> Frame:
        """Return a frame to write in, waiting until the server has done with one.

        Args:
            timeout_s: by default the client's.

        Raises:
            TimeoutError: the server still uses all that were closed.
            RuntimeError: all frames are open in this program, so that waiting would be of no use.
            ConnectionLost: the lease has ended.
        """
        self._line.check_owner()
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        until_ns = time.monotonic_ns() + timeout_ns(limit_s, "timeout_s")
        while (frame := self.frame_nowait()) is None:
            left_ns = until_ns - time.monotonic_ns()
            self.check_wait(limit_s, is_over=left_ns <= 0)
            self._line.turn(left_ns)
        return frame


class AsyncLease(Lease):
    """A lease of an AsyncClient; ``async with`` closes it."""

    def __init__(self, answer: Answer, memory: mmap.mmap, timeout_s: float) -> None:
        super().__init__(answer, memory)
        self._timeout_s = timeout_s
        self._news = asyncio.Event()

    async def frame(self, timeout_s: float | None = None) -> Frame:
        """Return a frame to write in, waiting until the server has done with one; see ``BlockingLease.frame``."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        until = time.monotonic() + timeout_ns(limit_s, "timeout_s") / _NS_PER_S
        while (frame := self.frame_nowait()) is None:
            left_s = until - time.monotonic()
            self.check_wait(limit_s, is_over=left_s <= 0)
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), left_s)
            except TimeoutError:
                continue
        return frame

    def end(self) -> None:
        """Take note that the connection has ended, and wake who waits."""
        super().end()
        self._news.set()

    def take_back(self, frame: int, *, was_busy: bool) -> None:
        """Let a frame be given out again, and wake who waits."""
        super().take_back(frame, was_busy=was_busy)
        self._news.set()
