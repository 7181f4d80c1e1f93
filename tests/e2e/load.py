"""Load on the ``digests`` lane: random payloads of random sizes, each with an answer that digests every byte of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import configs
from raw_client import PATIENCE_S, Answer, RawClient, bytes_template
from stages_for_tests import expected_answer

from schemas.templates import RequestTemplate

OUTSTANDING = 48


class DigestLoad:
    """A client that keeps OUTSTANDING requests in flight while it is told to run."""

    def __init__(self, endpoint: str, *, seed: int, outstanding: int = OUTSTANDING) -> None:
        self.client = RawClient(endpoint, is_right=_is_right)
        self.sent = 0
        self._outstanding = outstanding
        self._random = random.Random(seed)
        self._templates: dict[int, RequestTemplate] = {}

    def send_one(self) -> None:
        """Send one request of 1 to MAX_BODY_BYTES bytes; small ones are as likely as large ones."""
        size = self._random.randint(1, 1 << self._random.randint(1, configs.MAX_BODY_BYTES.bit_length() - 1))
        payload = self._random.randbytes(size)
        template = self._templates.setdefault(size, bytes_template("digests", size))
        self.client.send(template, [payload], payload)
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
                self.send_one()
            self.client.receive(0.01)

    def finish(self) -> None:
        """Wait for all answers and fail unless each request got its one right answer."""
        self.client.finish()
        self.client.assert_all_right(self.sent)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()


def _is_right(answer: Answer, payload: bytes) -> bool:
    return answer["answer"] == expected_answer(payload)
