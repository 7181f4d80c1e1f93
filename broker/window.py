"""How much of a lane is dispatched: the window W, from measured stage times. Pure arithmetic."""

from __future__ import annotations

# How much of the newest batch's time goes into the running mean: 1/8 follows a change within some ten batches.
SMOOTHING = 8
DEFAULT_INSIDE_NS = 1_000_000
# So many runs of each stage are seen before anything is refused by them: the first ones are slow.
RUNS_TO_TRUST = 16


class Window:
    """W slots, so that the work inside the lane is worth at most ``inside_ns`` (default: the larger of 2 runs and 1 ms).

    Args:
        slots: N, the lane's slots; W never exceeds it.
        cuts: processes behind the first one; one more batch is on its way for each.
        replicas: of the slowest process.
        max_batch_size: rows of a full batch.
        inside_ns: 0 = by measurement.
    """

    def __init__(self, *, slots: int, cuts: int, replicas: int, max_batch_size: int, inside_ns: int = 0) -> None:
        self._slots = slots
        self._cuts = cuts
        self._replicas = replicas
        self._inside_ns = inside_ns
        self._row_ns: list[float] = []
        self._run_ns: list[float] = []
        self._path_ns = 0.0
        self._runs = 0
        # What the whole path takes at least, by its shortest recent runs; 0 until enough of them are known.
        self.path_ns = 0.0
        # Nothing is measured yet: two full batches for each replica and one for each cut.
        self.size = min(slots, 2 * max_batch_size * replicas + max_batch_size * cuts)

    def observe(self, stage: int, run_ns: int, batch: int) -> None:
        """Take note of one run of *batch* rows in *stage* and correct W."""
        while len(self._row_ns) <= stage:
            self._row_ns.append(0.0)
            self._run_ns.append(0.0)
        row_ns = run_ns / max(batch, 1)
        known = self._row_ns[stage]
        self._row_ns[stage] = known + (row_ns - known) / SMOOTHING if known else row_ns
        # The shortest recent run, slowly forgotten: what a batch must cost, not what it may.
        shortest = self._run_ns[stage]
        self._run_ns[stage] = recent = min(run_ns, shortest + shortest / 64 + 1) if shortest else run_ns
        self._path_ns += recent - shortest
        self._runs += 1
        self.path_ns = self._path_ns if self._runs > RUNS_TO_TRUST * len(self._run_ns) else 0.0
        self._resize()

    def _resize(self) -> None:
        slowest = max(range(len(self._row_ns)), key=self._row_ns.__getitem__)
        inside_ns = self._inside_ns or max(DEFAULT_INSIDE_NS, 2 * self._run_ns[slowest])
        rows = int(inside_ns / max(self._row_ns[slowest], 1.0)) + 1
        self.size = min(self._slots, max(2, rows * self._replicas + self._cuts))

    def backlog_ns(self, requests: int) -> int:
        """Return how long *requests* waiting requests will take at the measured rate; 1 ms while nothing is measured."""
        slowest_ns = max(self._row_ns, default=0.0)
        return int(requests * slowest_ns / self._replicas) or 1_000_000
