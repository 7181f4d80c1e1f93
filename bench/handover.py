"""Hand-over by lease: how long a call takes whose frame lies in shared memory already, and what of it its size costs.

A hand-over runs from the call of the blocking Python client to its result. The frames are written before; the lane reads as much
of a large frame as of a small one; one call is under way at a time, and the sizes take turns call by call.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.lanes import TOUCHED
from clients import Client, Frame

WARM_UP_CALLS = 20


class HandOver:
    """A client with a lease that has one frame for each of *rows*, all open and written."""

    def __init__(self, endpoint: str, lane: str, rows: Sequence[NDArray[Any]]) -> None:
        self._client = Client(endpoint)
        self._lane = lane
        self._lease = self._client.lease(frame_bytes=max(row.nbytes for row in rows), frames=len(rows))
        self._frames = [(self._written(row), int(row[:TOUCHED].sum(dtype=np.int64))) for row in rows]
        for _ in range(WARM_UP_CALLS):
            self._turn(self._frames)

    def measure(self, seconds: float) -> list[float]:
        """Return the median microseconds of each frame's hand-over.

        Raises:
            ValueError: an answer that is not of its frame.
        """
        turns: list[list[int]] = []
        end = time.perf_counter() + seconds
        while not turns or time.perf_counter() < end:
            # There and back: each size follows each other as often.
            turns += [self._turn(self._frames), self._turn(self._frames[::-1])[::-1]]
        return [statistics.median(times_ns) / 1e3 for times_ns in zip(*turns, strict=True)]

    def _turn(self, frames: Sequence[tuple[Frame, int]]) -> list[int]:
        """Hand each of *frames* over once; return the nanoseconds of each."""
        return [self._hand_over(frame, expected) for frame, expected in frames]

    def _hand_over(self, frame: Frame, expected: int) -> int:
        start_ns = time.perf_counter_ns()
        result = self._client.infer(self._lane, {"frame": frame})
        took_ns = time.perf_counter_ns() - start_ns
        if result["sum"][0] != expected:
            raise ValueError(f"expected the sum {expected} of the frame, got {result['sum'][0]}")
        return took_ns

    def _written(self, row: NDArray[Any]) -> Frame:
        frame = self._lease.frame()
        frame.array(row.shape, row.dtype)[...] = row
        return frame
