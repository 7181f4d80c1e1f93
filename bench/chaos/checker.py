"""The independent checker: a process of its own that sends requests over one raw DEALER, and judges every final by its id.

``python -m bench.chaos.checker FILE`` reads its task from FILE (JSON, ``Task``), then one order a line on stdin, each answered by
one line on stdout: pause, resume, mark NS, end_epoch, end_after NS, count, finish. It knows the wire and nothing of the server.
"""

from __future__ import annotations

import json
import selectors
import sys
import time
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from bench.chaos.judge import Judge
from bench.chaos.supply import Supply, make_cases
from bench.chaos.wire_peer import WirePeer
from schemas.status import Flag

# Longest time without a look at orders.
TURN_S = 0.02
# After the last send; what is not answered by then is lost. A replacement and a queue behind it fit in many times.
DRAIN_S = 90.0
# An answer that comes a second time comes close behind the first.
ECHO_S = 0.2
# Sends of one turn; an open loop that is behind catches up in many turns and keeps reading.
SENDS_PER_TURN = 64


@dataclass(frozen=True, slots=True)
class Task:
    """What a checker does.

    Args:
        supply: what is sent.
        rate: requests a second; 0 = as many as keep *outstanding* under way.
        outstanding: at most so many under way.
        packed: requests in a message; 1 = each its own.
        log: file for a line per send and per final, "" = none.
    """

    endpoint: str
    supply: Supply
    rate: float = 0.0
    outstanding: int = 32
    packed: int = 1
    budget_us: int = 60_000_000
    idempotent: bool = True
    seed: int = 1
    log: str = ""

    def to_json(self) -> str:
        """Return it for the command line of the other process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Return it from there."""
        raw = json.loads(text)
        return cls(**{**raw, "supply": Supply(**raw["supply"])})


class Checker:
    """One connection, one judge, one pace."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._cases = make_cases(task.supply, task.seed)
        self._peer = WirePeer(task.endpoint, packed_replies=task.packed > 1)
        self.judge = Judge()
        self._paused = False
        self._flags = int(Flag.IDEMPOTENT) * task.idempotent | int(Flag.PACKED) * (task.packed > 1)
        self._due_ns = time.monotonic_ns()
        self._log: TextIO | None = Path(task.log).open("w", encoding="ascii") if task.log else None  # noqa: SIM115

    def turn(self) -> None:
        """Send what is due, judge what has come."""
        if not self._paused:
            for _ in range(SENDS_PER_TURN):
                if len(self.judge.pending) + self._task.packed > self._task.outstanding or not self._is_due():
                    break
                self._send()
        self._peer.socket.poll(self._wait_ms())
        self._judge_all()

    def _is_due(self) -> bool:
        return self._task.rate == 0 or time.monotonic_ns() >= self._due_ns

    def _wait_ms(self) -> int:
        if self._paused or self._task.rate == 0:
            return int(TURN_S * 1000)
        return max(0, min(int(TURN_S * 1000), (self._due_ns - time.monotonic_ns()) // 1_000_000))

    def _send(self) -> None:
        frames: list[bytes] = []
        for _ in range(self._task.packed):
            case = self._cases.next()
            now_ns = time.monotonic_ns()
            request_id = self.judge.send(case.expected, now_ns)
            frames += self._peer.frames_of(case, request_id, self._task.budget_us, self._flags)
            if self._log is not None:
                self._log.write(f"{now_ns} send {request_id} {case.model}\n")
        self._peer.socket.send_multipart(frames)
        if self._task.rate:
            self._due_ns += int(self._task.packed * 1e9 / self._task.rate)

    def _judge_all(self) -> None:
        for request_id, outcome in self._peer.finals():
            now_ns = time.monotonic_ns()
            found = self.judge.answer(request_id, outcome, now_ns)
            if self._log is not None:
                self._log.write(f"{now_ns} final {request_id} {found}\n")

    def obey(self, order: list[str]) -> dict[str, Any]:
        """Do what one order says, and return what to answer."""
        judge = self.judge
        match order:
            case ["pause"]:
                self._paused = True
            case ["resume"]:
                self._paused = False
                self._due_ns = time.monotonic_ns()
            case ["mark", at_ns]:
                judge.mark(int(at_ns))
            case ["end_epoch"]:
                judge.end_epoch()
            case ["end_after", at_ns]:
                judge.end_after(int(at_ns))
            case ["finish"]:
                self._finish()
                return judge.report() | self._times()
        return {"sent": judge.sent, "ok": judge.ok, "pending": len(judge.pending), "errors": judge.errors.total()}

    def _finish(self) -> None:
        end = time.monotonic() + DRAIN_S
        while self.judge.pending and time.monotonic() < end:
            self._peer.socket.poll(50)
            self._judge_all()
        end = time.monotonic() + ECHO_S
        while time.monotonic() < end:
            self._peer.socket.poll(20)
            self._judge_all()
        if self._log is not None:
            self._log.close()

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()

    def _times(self) -> dict[str, Any]:
        judge = self.judge
        return {
            "ok_ms": _percentiles(judge.ok_ns),
            "error_ms": _percentiles(judge.error_ns),
            "recoveries_ms": [round(ns / 1e6, 1) for ns in judge.recoveries_ns],
        }


def _percentiles(times_ns: array[int]) -> dict[str, float] | None:
    """Return median, 99th percentile and maximum in ms; None of nothing."""
    if not times_ns:
        return None
    found = np.percentile(np.frombuffer(times_ns, np.int64), [50, 99, 100]) / 1e6
    return {name: round(float(value), 3) for name, value in zip(("p50", "p99", "max"), found, strict=True)}


def main(path: str) -> None:
    """Work until told to finish, or until whoever gives the orders is gone."""
    checker = Checker(Task.from_json(Path(path).read_text(encoding="utf-8")))
    orders = selectors.DefaultSelector()
    orders.register(sys.stdin, selectors.EVENT_READ)
    print(json.dumps({"ready": True}), flush=True)
    while True:
        checker.turn()
        if not orders.select(0):
            continue
        order = sys.stdin.readline().split()
        if not order:
            return
        print(json.dumps(checker.obey(order)), flush=True)
        if order == ["finish"]:
            return


if __name__ == "__main__":
    main(sys.argv[1])
