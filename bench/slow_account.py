"""The books of the generator in Python: the same as ``account.h``, and the same report. Pure: times come in."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bench.histogram import Histogram
from bench.load import Load
from schemas.layout import Layout
from schemas.layout_cache import LayoutCache
from schemas.messages import Failure, read_message
from schemas.status import Code, Flag, Kind, RequestError
from schemas.wire import ROUTE, STAGE_TIME, Route

NS_PER_S = 1_000_000_000
# After the last answer: time for a second one to show up.
SETTLE_NS = 50_000_000


@dataclass(slots=True)
class Account:
    """Which requests are under way, and what came of the others. *start_ns* is when the warm-up begins."""

    load: Load
    start_ns: int
    due_ns: dict[int, int] = field(default_factory=dict)
    sent: int = 0
    ok: int = 0
    doubled: int = 0
    strange: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    late_ns: list[int] = field(default_factory=list)
    latencies_ns: list[int] = field(default_factory=list)
    windows_ns: list[list[int]] = field(default_factory=list)
    measured: int = 0
    backlog_us: int = 0
    timed: int = 0
    stages: list[dict[str, Any]] = field(default_factory=list)
    next_due_ns: float = 0.0
    last_answer_ns: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(1))
    _cache: LayoutCache = field(default_factory=LayoutCache)

    def __post_init__(self) -> None:
        """Begin the schedule."""
        self.next_due_ns = self.start_ns
        self.windows_ns = [[] for _ in range(int(self.load.seconds / self.load.window_s + 1e-9))]

    @property
    def from_ns(self) -> int:
        """When measuring begins."""
        return self.start_ns + int(self.load.warm_up_s * NS_PER_S)

    @property
    def to_ns(self) -> int:
        """When it ends."""
        return self.from_ns + int(self.load.seconds * NS_PER_S)

    def schedule_next(self) -> None:
        """Move the schedule on by the distance between two due moments."""
        gap_ns = NS_PER_S / self.load.rate
        self.next_due_ns += self._random.expovariate(1) * gap_ns if self.load.is_poisson else gap_ns

    def book_sent(self, due_ns: int | None, now_ns: int) -> int:
        """Book a request that was due at *due_ns*, None = now, and return its id."""
        self.sent += 1
        self.due_ns[self.sent] = now_ns if due_ns is None else due_ns
        if due_ns is not None and self.from_ns <= due_ns < self.to_ns:
            self.late_ns.append(now_ns - due_ns)
        return self.sent

    def book_echo(self, request_id: int, now_ns: int) -> None:
        """Book a request that came back."""
        due_ns = self._end(request_id, now_ns)
        if due_ns is not None:
            self._book_ok(due_ns, now_ns)

    def book_message(self, header: bytes, now_ns: int) -> bool:
        """Book a Slotline message; return whether the frames after it are messages too."""
        try:
            layout = self._cache.read(header)
            route = Route._make(ROUTE.unpack_from(header, layout.route_at))
            code = _code(header) if route.kind == Kind.ERROR else Code.NONE
        except RequestError:
            self.strange += 1
            return False
        if route.kind not in (Kind.INFER_REPLY, Kind.ERROR):
            self.strange += 1
            return False
        due_ns = self._end(route.request_id, now_ns)
        if due_ns is not None and route.kind == Kind.ERROR:
            self.codes[int(code)] += 1
        elif due_ns is not None and self._book_ok(due_ns, now_ns):
            self._book_times(header, layout)
        return bool(route.flags & Flag.PACKED)

    def report(self, client_cpu_s: float) -> dict[str, Any]:
        """Return the report in the generators' common form."""
        latency = Histogram.of(self.latencies_ns)
        windows = [
            {"rate": len(part) / self.load.window_s, "p50_us": Histogram.of(part).percentile_us(0.5) or 0.0}
            for part in self.windows_ns
        ]
        return {
            "sent": self.sent, "ok": self.ok, "errors": self.codes.total(), "lost": len(self.due_ns), "doubled": self.doubled,
            "strange": self.strange, "errors_by_code": {str(code): count for code, count in self.codes.items()},
            "seconds": self.load.seconds, "rate": self.measured / self.load.seconds, "client_cpu_s": client_cpu_s,
            "late_us": sum(self.late_ns) / len(self.late_ns) / 1e3 if self.late_ns else 0.0,
            "late_max_us": max(self.late_ns, default=0) / 1e3, "timed": self.timed, "backlog_us": self.backlog_us,
            "stages": self.stages, "windows": windows, "max_ns": latency.max_ns, "histogram": latency.buckets,
        }  # fmt: skip

    def _end(self, request_id: int, now_ns: int) -> int | None:
        """End a request and return when it was due; None when it is no request, or had ended before."""
        if not 0 < request_id <= self.sent:
            self.strange += 1
            return None
        due_ns = self.due_ns.pop(request_id, None)
        if due_ns is None:
            self.doubled += 1
            return None
        self.last_answer_ns = now_ns
        return due_ns

    def _book_ok(self, due_ns: int, now_ns: int) -> bool:
        """Book a result; return whether it came in the measured time."""
        self.ok += 1
        if self.from_ns <= due_ns < self.to_ns:
            self.latencies_ns.append(now_ns - due_ns)
        if not self.from_ns <= now_ns < self.to_ns:
            return False
        self.measured += 1
        window = int((now_ns - self.from_ns) / (self.load.window_s * NS_PER_S))
        if window < len(self.windows_ns):
            self.windows_ns[window].append(now_ns - due_ns)
        return True

    def _book_times(self, header: bytes, layout: Layout) -> None:
        """Book the times of a result's stages."""
        if not layout.n_stages:
            return
        self.timed += 1
        if layout.backlog_at >= 0:
            self.backlog_us += int.from_bytes(header[layout.backlog_at : layout.backlog_at + 4], "little")
        rows = STAGE_TIME.iter_unpack(header[layout.timing_at : layout.timing_at + layout.n_stages * STAGE_TIME.size])
        for at, (queue_us, run_us, batch) in enumerate(rows):
            if at == len(self.stages):
                self.stages.append({"queue_us": 0, "run_us": 0, "batches": Counter()})
            stage = self.stages[at]
            stage["queue_us"] += queue_us
            stage["run_us"] += run_us
            stage["batches"][str(batch)] += 1


def _code(header: bytes) -> Code:
    """Return the code of an error message."""
    body = read_message(header)[1]
    assert isinstance(body, Failure), "the kind and the body of a message that could be read belong together"
    return body.code
