"""One lane as the broker sees it: backlog, slots, window, and which processes serve it. Pure; owner: the broker's main thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from schemas.plan import BATCH_CAUSES, BATCH_ROWS, MIN_HANG_NS, LanePlan

from .admission import Backlog
from .key_lines import KeyLines
from .life import LIVE, WITH_STAGES, Request
from .probes import Probes
from .slots import SlotTable, SlotWords
from .window import Window


class Lane:
    """State of one lane. ``replicas[p]`` are the incarnations on the board that serve process p of the lane's cut.

    *waiting* have a slot and wait for a process, *kept* is how many have one and wait for an elder of their key.
    """

    def __init__(self, plan: LanePlan, words: SlotWords, barrier: Callable[[], None], *, replicas: int = 1) -> None:
        self.plan = plan
        self.index = plan.index
        self._batches = words.batches
        self.slots = SlotTable(words, barrier)
        self.backlog = Backlog(max_requests=plan.backlog, max_bytes=plan.backlog_bytes, quantum_rows=max(plan.max_rows, 8))
        self.lines = KeyLines(self.backlog, replicas=replicas)
        self.window = Window(
            slots=plan.slots,
            cuts=len(plan.cut) - 1,
            replicas=replicas,
            max_batch_size=plan.max_batch_size,
            inside_ns=plan.inside_ns,
        )
        self.probes = Probes()
        self.replicas: list[list[int]] = [[] for _ in plan.cut]
        self.waiting: deque[Request] = deque()
        self.kept = 0
        self.overheld = 0
        self.unavailable = ""

    @property
    def is_ready(self) -> bool:
        """True when each process of the cut has a replica on the board."""
        return not self.unavailable and all(self.replicas)

    @property
    def dispatched(self) -> int:
        """How many slots are with the stages or condemned: what the window bounds."""
        return self.slots.used_count - len(self.waiting) - self.kept

    @property
    def in_flight(self) -> int:
        """How many requests of this lane wait for an answer: counted, request by request."""
        return self.backlog.count + self.live_in_slots()

    def live_in_slots(self) -> int:
        """Count the slots whose client still waits."""
        return sum(request is not None and request.state in LIVE for request in self.slots.requests)

    def count_overheld(self, now_ns: int) -> int:
        """Count the slots that live processes keep for longer than all calls before them may take: each its hang limit."""
        hang_ns = max(MIN_HANG_NS, self.plan.hang_limit_ns)
        oldest_ns = now_ns - hang_ns * (1 + self.slots.used_count) * len(self.plan.cut)
        kept = [r for r in self.slots.requests if r is not None and r.state in WITH_STAGES and r.dispatched_ns < oldest_ns]
        self.overheld = len(kept)
        return self.overheld

    def batches(self) -> tuple[dict[str, int], float]:
        """Return how many batches closed for each cause since the epoch began, and how many rows they had on average."""
        words: list[int] = self._batches.sum(axis=0).tolist()
        by_cause = dict(zip(BATCH_CAUSES, words, strict=False))
        return by_cause, words[BATCH_ROWS] / max(1, sum(by_cause.values()))

    def process_of(self, stage: int) -> int:
        """Return which process of the cut runs step *stage*."""
        for index, process in enumerate(self.plan.cut):
            if process.first_step <= stage < process.end_step:
                return index
        raise AssertionError(f"stage {stage} of lane {self.plan.name} is in no process")

    def add_replica(self, process: int, incarnation: int) -> None:
        """Let *incarnation* take hops for server process *process*."""
        for index, part in enumerate(self.plan.cut):
            if part.process == process and incarnation not in self.replicas[index]:
                self.replicas[index].append(incarnation)

    def drop_replica(self, incarnation: int) -> None:
        """Send nothing more to *incarnation*."""
        for serving in self.replicas:
            if incarnation in serving:
                serving.remove(incarnation)
