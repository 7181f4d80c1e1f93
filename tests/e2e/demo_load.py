"""Load on the demo's two lanes, each answer compared bit for bit with a direct run of the model."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from raw_client import PATIENCE_S, Answer, RawClient

from schemas.templates import RequestTemplate, TensorForm
from schemas.tensors import DType, unpack_bytes
from stages.demo import parts_path, ticks_path
from stages.demo.reference import reference_parts, reference_ticks

TICKS = 512
Request = tuple[RequestTemplate, list[bytes], Any]


@cache
def ticks() -> tuple[list[bytes], dict[str, list[bytes]]]:
    """Return the first rows of market features, and of each output what a direct run of each row gives."""
    with np.load(ticks_path()) as file:
        rows: NDArray[np.float32] = np.ascontiguousarray(file["features"][:TICKS], np.float32)
    outputs = reference_ticks(rows)
    return [row.tobytes() for row in rows], {name: [value.tobytes() for value in values] for name, values in outputs.items()}


@cache
def parts() -> tuple[list[bytes], list[tuple[str, float, bytes]]]:
    """Return the part photos, and (verdict, score, boxes) of each by a direct run."""
    paths = sorted(parts_path().glob("*.png"))
    found = [(verdict, score, boxes.tobytes()) for verdict, score, boxes in reference_parts(paths)]
    return [path.read_bytes() for path in paths], found


class DemoLoad:
    """A client that keeps *outstanding* requests in flight: ticks, and a photo among *ticks_per_photo* of them (0 = none).

    Args:
        packed: send several ticks in a message, and take replies packed.
    """

    def __init__(
        self, endpoint: str, *, seed: int, outstanding: int = 256, ticks_per_photo: int = 200, packed: bool = False
    ) -> None:
        self.client = RawClient(endpoint, packed_replies=packed, is_right=is_right)
        self.sent = 0
        self._outstanding = outstanding
        self._ticks_per_photo = ticks_per_photo
        self._packed = packed
        self._random = random.Random(seed)
        size = len(ticks()[0][0])
        self._tick = RequestTemplate("ticks", [TensorForm("features", DType.FP32, (1, size // 4), size, inline=True)])

    def send_some(self) -> None:
        """Send one message: a photo, a tick, or 1 to 64 ticks packed."""
        if self._ticks_per_photo and self._random.randrange(self._ticks_per_photo) == 0:
            self.send(self.photo(self._random.randrange(len(parts()[0]))))
            return
        some = [self.tick(self._random.randrange(TICKS)) for _ in range(self._random.randint(1, 64) if self._packed else 1)]
        if len(some) == 1:
            self.send(some[0])
        else:
            self.client.send_packed(some)
            self.sent += len(some)

    def send(self, request: Request) -> None:
        """Send one request in a message of its own."""
        self.client.send(*request)
        self.sent += 1

    def run_until(self, condition: Callable[[], object], *, timeout_s: float = PATIENCE_S) -> None:
        """Keep the load up until *condition* holds, looked at every 50 ms; fail when it does not."""
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, f"the load ran {timeout_s:g} s in vain: {self.client.tally}"
            self.run_for(0.05)

    def run_for(self, seconds: float) -> None:
        """Keep the load up for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            while len(self.client.pending) < self._outstanding:
                self.send_some()
            self.client.receive(0.01)

    def run_answers(self, count: int) -> None:
        """Keep the load up until *count* more requests were answered rightly."""
        goal = self.client.tally.ok + count
        self.run_until(lambda: self.client.tally.ok >= goal)

    def finish(self) -> None:
        """Wait for all answers and fail unless each request got its one right answer."""
        self.client.finish()
        self.client.assert_all_right(self.sent)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def tick(self, at: int) -> Request:
        """Return the request for row *at* of the market features."""
        return self._tick, [ticks()[0][at]], ("ticks", at)

    def photo(self, at: int) -> Request:
        """Return the request for part photo *at*."""
        photo = parts()[0][at]
        return _photo_template(len(photo)), [photo], ("qc", at)


def _photo_template(size: int) -> RequestTemplate:
    return RequestTemplate("qc", [TensorForm("image", DType.ENCODED, (1,), size, size <= 4096, "image/png")])


def is_right(answer: Answer, expected: tuple[str, int]) -> bool:
    """Return whether an answer is bit for bit what a direct run of that input gives."""
    lane, at = expected
    if lane == "ticks":
        return dict(answer) == {name: values[at] for name, values in ticks()[1].items()}
    verdict, score, boxes = parts()[1][at]
    (word,), _ = unpack_bytes(answer["verdict"], 1)
    return (word.decode(), answer["score"], answer["boxes"]) == (verdict, np.float32(score).tobytes(), boxes)
