"""Run a load generator: give it the requests, watch the server's CPU meanwhile, read its report.

Every side of a comparison is measured by the same generator; nothing here knows which server answers. Generators are ``load.c``
(ZeroMQ), ``http.c`` (the peers), ``lease_load.py`` (leases), and ``slow_load.py``, which stands in for the first where nothing
can be compiled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench import usage
from bench.build import build
from bench.histogram import Histogram
from bench.requests import Requests
from bench.stability import Window, is_stable
from schemas.status import ConfigError

# What a run may take beyond its own length: start, drain, a loaded machine.
GRACE_S = 60.0
C, PYTHON, HTTP = "c", "python", "http"
# In Python too, with the requests in frames of a lease.
LEASE = "lease"


@dataclass(frozen=True, slots=True)
class Load:
    """How to load a server.

    Args:
        outstanding: closed loop: requests under way; open loop: at most so many.
        rate: requests per second of an open loop; 0 = closed loop.
        is_poisson: exponential instead of equal distances in the open loop.
        seconds: measured time, after *warm_up_s* that does not count.
        drain_s: how long answers are awaited after the last send; what is missing then is lost.
        is_echo: the server sends requests back unchanged (a limit), else it answers with Slotline messages.
        hello: a message that each connection sends first.
        generator: C, PYTHON, HTTP or LEASE.
    """

    outstanding: int
    rate: float = 0.0
    is_poisson: bool = False
    seconds: float = 3.0
    warm_up_s: float = 1.0
    drain_s: float = 5.0
    window_s: float = 0.5
    connections: int = 1
    is_echo: bool = False
    hello: bytes = b""
    generator: str = C


@dataclass(frozen=True, slots=True)
class Stage:
    """Sums over the measured replies for one stage: waiting, running (microseconds), and replies by batch size."""

    queue_us: int
    run_us: int
    batches: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Report:
    """What the generator saw. Counters are of the whole run: sent = ok + errors + lost; the rest of the measured time.

    ``strange`` are messages that answer no request; ``late_us`` is the mean of send time - due time of an open loop;
    ``server_cpu_s`` is None when it is not known which processes serve.
    """

    sent: int
    ok: int
    errors: int
    lost: int
    doubled: int
    strange: int
    errors_by_code: Mapping[str, int]
    seconds: float
    rate: float
    client_cpu_s: float
    late_us: float
    late_max_us: float
    timed: int
    backlog_us: int
    stages: tuple[Stage, ...]
    windows: tuple[Window, ...]
    latency: Histogram
    server_cpu_s: float | None = None

    @property
    def is_clean(self) -> bool:
        """True when every request was answered once, with a result, and nothing else came."""
        return self.sent == self.ok > 0 and self.doubled == self.strange == 0

    @property
    def is_stable(self) -> bool:
        """True when the last windows agree."""
        return is_stable(self.windows)

    @property
    def p50_us(self) -> float:
        """The median latency; 0 when there was no answer."""
        return self.latency.percentile_us(0.5) or 0.0

    @property
    def p99_us(self) -> float | None:
        """None with too few samples."""
        return self.latency.percentile_us(0.99)

    def complaint(self) -> str:
        """Return in one line what was not clean."""
        return (
            f"of {self.sent} sent: {self.errors} errors {dict(self.errors_by_code)}, {self.lost} lost, "
            f"{self.doubled} doubled, {self.strange} strange"
        )


def read_report(text: str) -> Report:
    """Return the report that a generator printed as JSON."""
    found: dict[str, Any] = json.loads(text)
    buckets = tuple((int(top), int(count)) for top, count in found.pop("histogram"))
    found["latency"] = Histogram(buckets, found.pop("max_ns"))
    found["stages"] = tuple(Stage(**stage) for stage in found["stages"])
    found["windows"] = tuple(Window(**window) for window in found["windows"])
    return Report(**found)


def run_load(endpoint: str, requests: Requests, load: Load, *, server_pid: int | None = None) -> Report:
    """Load the server at *endpoint* and return what came of it.

    Args:
        server_pid: the process whose CPU, with that of everything below it, is the server's.

    Raises:
        ConfigError: the generator could not be built or did not run to its end.
    """
    with contextlib.ExitStack() as stack:
        argv = [*_generator(load.generator), "--endpoint", endpoint, *_options(load)]
        argv += ["--requests", stack.enter_context(_file(requests.table()))]
        if load.hello:
            argv += ["--hello", stack.enter_context(_file(load.hello))]
        process = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        watchdog = threading.Timer(load.warm_up_s + load.seconds + load.drain_s + GRACE_S, process.kill)
        stack.callback(watchdog.cancel)
        watchdog.start()
        # An interrupt must not leave it loading the server.
        stack.callback(process.kill)
        return _watch(process, server_pid)


def _watch(process: subprocess.Popen[str], server_pid: int | None) -> Report:
    """Read what the generator says, note the server's CPU at its marks, and return its report."""
    assert process.stdout is not None
    assert process.stderr is not None
    marks: list[float] = []
    last = ""
    for line in process.stdout:
        if line.strip() in ("measuring", "measured"):
            marks.append(usage.cpu_s(usage.tree(server_pid)) if server_pid else 0.0)
        else:
            last = line
    complaint = process.stderr.read().strip()
    if process.wait() != 0:
        raise ConfigError(f"the load generator failed: {complaint or f'exit {process.returncode}'}")
    report = read_report(last)
    cpu_s = marks[1] - marks[0] if server_pid and len(marks) == 2 else None
    return dataclasses.replace(report, server_cpu_s=cpu_s)


def _generator(name: str) -> Sequence[str]:
    """Return the command of the generator *name*."""
    if name in (PYTHON, LEASE):
        return [sys.executable, "-m", "bench.slow_load" if name == PYTHON else "bench.lease_load"]
    return [str(build("load" if name == C else "http"))]


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    """Yield the name of a temporary file with *content*."""
    with tempfile.NamedTemporaryFile(prefix="slotline-") as file:
        file.write(content)
        file.flush()
        yield file.name


def _options(load: Load) -> list[str]:
    """Return the generator's options for *load*."""
    values = {
        "connections": load.connections,
        "outstanding": load.outstanding,
        "seconds": load.seconds,
        "warm-up": load.warm_up_s,
        "drain": load.drain_s,
        "window": load.window_s,
    }
    if load.rate > 0:
        values["rate"] = load.rate
    options = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    return options + ["--poisson"] * load.is_poisson + ["--echo"] * load.is_echo
