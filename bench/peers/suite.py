"""The suite that compares Slotline with other servers: the same models and work, one request a message on all sides."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.lanes import PHOTO_PIXELS, photo_row, tile_means
from bench.load import HTTP, LEASE, Load, Report, run_load
from bench.peers.models import TICK_INPUTS, write_image, write_tick
from bench.peers.servers import PEERS, Running, check_installed, running_peer
from bench.requests import Requests
from bench.rows import MissingError, Row, make_row
from bench.servers import Server, serving_text
from bench.suite import Suite
from bench.workloads import Workload, frame, photo, tick
from schemas.status import ConfigError

OUTSTANDING = (128, 256)
TAIL_RATE = 20_000
# HTTP carries one request a connection: so many may be under way in the open loop.
TAIL_CONNECTIONS = 512
LARGE_OUTSTANDING = 32
FRAMES_OUTSTANDING = 4

ROWS: tuple[Row, ...] = (
    make_row("peer_tick_rps", "ours.rate", "peers.rate", (1.3, 2.0), "tick throughput, 128 to 256 outstanding / the best peer"),
    make_row("peer_tick_cpu", "ours.cpu", "peers.cpu", (0.7, 0.5), "server CPU of a tick under that load / the best peer"),
    make_row(
        "peer_tick_p50", "ours.p50_us", "peers.p50_us", (1.5, 1.0), "tick p50 alone, same setting / the best peer in its best"
    ),
    make_row("peer_tick_tail", "ours.tail_us", "peers.tail_us", (0.7, 0.4), "tick p99 at 20 thousand a second / the best peer"),
    make_row("peer_photo", "ours.photos", "peers.photos", (1.0, 1.05), "photos a second / the best peer"),
    make_row("peer_frame", "ours.frame_us", "peers.frame_us", (0.7, 0.5), "p50 of a 6 MB frame, by lease / the best peer"),
    make_row("peer_frame_rps", "ours.frames", "peers.frames", (1.3, 1.6), "6 MB frames a second, by lease / the best peer"),
)


def run_peers(suite: Suite) -> None:
    """Measure all figures that the suite wants."""
    suite.measure("ticks", _both(["rate", "cpu", "p50_us", "tail_us"]), Ticks)
    suite.measure("photos", _both(["photos"]), Photos)
    suite.measure("frames", _both(["frame_us", "frames"]), Frames)


def _both(names: Sequence[str]) -> list[str]:
    return [f"{side}.{name}" for side in ("ours", "peers") for name in names]


@dataclass(frozen=True, slots=True)
class Reading:
    """What is read of a report, and which of several is the best."""

    figure: Callable[[Report], float | None]
    best: Callable[[Sequence[float]], float]


RATE = Reading(lambda report: report.rate, max)
P50 = Reading(lambda report: report.p50_us, min)
P99 = Reading(lambda report: report.p99_us, min)
CPU = Reading(lambda report: _cpu_us(report), min)


class Sides:
    """Slotline and every peer that is installed, with one workload.

    Raises:
        MissingError: there is none.
    """

    name: str

    def __init__(self, stack: ExitStack, directory: Path, suite: Suite, workload: Workload, config: str) -> None:
        check_installed(self.name)
        self.suite = suite
        self._requests = workload.requests
        self._slotline = stack.enter_context(serving_text(directory, config))
        self._peers: list[Running] = []

    def start(self, stack: ExitStack, body: bytes, expected: NDArray[np.float32], model: Path | None) -> None:
        """Start the peers.

        Raises:
            MissingError: none of them serves.
        """
        missing = []
        for peer in PEERS[self.name]:
            try:
                self._peers.append(stack.enter_context(running_peer(peer, body, expected, model)))
            except ConfigError as error:
                print(f"without {peer.name}: {error}", file=sys.stderr, flush=True)
                missing.append(str(error))
        if not self._peers:
            raise MissingError("; ".join(dict.fromkeys(missing)))

    def ours(self, load: Load) -> Report:
        """Load Slotline."""
        return _run(self._slotline, self._requests, load)

    def peers(self, load: Load) -> list[tuple[str, Report]]:
        """Load each peer, one after the other."""
        return [(one.peer.name, _run(one.server, one.requests, replace(load, generator=HTTP))) for one in self._peers]

    def book(self, name: str, ours: Report, peers: Sequence[tuple[str, Report]], read: Reading) -> None:
        """Book the figure *name* of Slotline, of each peer, and of the best peer that lost nothing."""
        self.suite.add(f"ours.{name}", read.figure(ours), ours)
        for peer, report in peers:
            self.suite.figures.add(f"{peer}.{name}", read.figure(report), "" if report.is_clean else report.complaint())
        values = [value for _, report in peers if report.is_clean and (value := read.figure(report))]
        fault = "" if values else "no peer kept this load: errors, or too few answers in time"
        self.suite.figures.add(f"peers.{name}", read.best(values) if values else None, fault)


class Ticks(Sides):
    """64 float32 to the tick model."""

    name = "tick"

    def __init__(self, stack: ExitStack, directory: Path, suite: Suite) -> None:
        model = write_tick(directory)
        rows = np.random.default_rng(3).standard_normal((256, 1, TICK_INPUTS)).astype(np.float32)
        workload = replace(tick(), lane="tick", rows=[{"x": row} for row in rows])
        workload = replace(workload, settings={**workload.settings, "model": model})
        super().__init__(stack, directory, suite, workload, workload.config())
        self.start(stack, rows[0].tobytes(), _run_model(model, "x", rows[0])[0], model)

    def round(self) -> None:
        """Measure throughput with its CPU, the idle round trip, and the tail."""
        suite = self.suite
        if suite.wants("ours.rate", "ours.cpu"):
            loads = [suite.closed(outstanding) for outstanding in OUTSTANDING]
            ours = max((self.ours(load) for load in loads), key=lambda report: report.rate)
            peers = _best_of([self.peers(load) for load in loads])
            self.book("rate", ours, peers, RATE)
            self.book("cpu", ours, peers, CPU)
        if suite.wants("ours.p50_us"):
            self.book("p50_us", self.ours(suite.closed(1)), self.peers(suite.closed(1)), P50)
        if suite.wants("ours.tail_us"):
            load = suite.open(TAIL_RATE)
            self.book("tail_us", self.ours(load), self.peers(replace(load, outstanding=TAIL_CONNECTIONS)), P99)


class Photos(Sides):
    """JPEGs to the image model, decoded and resized by the same libraries."""

    name = "photo"

    def __init__(self, stack: ExitStack, directory: Path, suite: Suite) -> None:
        model = write_image(directory)
        workload = photo(model)
        super().__init__(stack, directory, suite, workload, workload.config(replicas=2))
        jpeg = bytes(workload.rows[0]["input"].content)
        self.start(stack, jpeg, _best_scores(model, jpeg), model)

    def round(self) -> None:
        """Measure throughput."""
        load = self.suite.closed(LARGE_OUTSTANDING)
        self.book("photos", self.ours(load), self.peers(load), RATE)


class Frames(Sides):
    """Raw frames and the statistics of their tiles: ours in a lease, Triton's also in shared memory.

    Both lie there before the first request, so that neither client's copy is measured.
    """

    name = "frame"

    def __init__(self, stack: ExitStack, directory: Path, suite: Suite) -> None:
        workload = frame("frame")
        super().__init__(stack, directory, suite, workload, workload.config(replicas=2, lease_frames=FRAMES_OUTSTANDING))
        pixels = workload.rows[0]["frame"]
        self.start(stack, pixels.tobytes(), tile_means(pixels).ravel(), None)

    def round(self) -> None:
        """Measure the idle round trip, and throughput."""
        suite = self.suite
        if suite.wants("ours.frame_us"):
            load = suite.closed(1)
            self.book("frame_us", self.ours(replace(load, generator=LEASE)), self.peers(load), P50)
        if suite.wants("ours.frames"):
            load = suite.closed(FRAMES_OUTSTANDING)
            self.book("frames", self.ours(replace(load, generator=LEASE)), self.peers(load), RATE)


def _run(server: Server, requests: Requests, load: Load) -> Report:
    return run_load(server.endpoint, requests, load, server_pid=server.pid)


def _best_of(runs: Sequence[Sequence[tuple[str, Report]]]) -> list[tuple[str, Report]]:
    """Return for each peer its fastest run."""
    return [max(of_peer, key=lambda one: one[1].rate) for of_peer in zip(*runs, strict=True)]


def _cpu_us(report: Report) -> float | None:
    """Return the server's CPU microseconds of one result."""
    results = report.rate * report.seconds
    return None if report.server_cpu_s is None or not results else report.server_cpu_s / results * 1e6


def _run_model(model: Path, name: str, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a model's one output."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    output: NDArray[np.float32] = session.run(None, {name: rows})[0]
    return output


def _best_scores(model: Path, jpeg: bytes) -> NDArray[np.float32]:
    """Return the five largest scores of a photo, largest first."""
    import simplejpeg

    row = np.empty((1, 3, PHOTO_PIXELS, PHOTO_PIXELS), np.float32)
    photo_row(simplejpeg.decode_jpeg(jpeg, "RGB"), row[0])
    return np.sort(_run_model(model, "input", row)[0])[:-6:-1]
