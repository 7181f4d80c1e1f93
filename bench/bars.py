"""The suite of promises: Slotline beside what this machine can do without it, under one generator with the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench import usage
from bench.bare_process import bare
from bench.inputs import packed_requests
from bench.limits import ipc_echo, ipc_sink, proxy_echo
from bench.load import Load, Report, run_load
from bench.requests import Requests
from bench.servers import FUSED, STAGES, Server, serving_text
from bench.suite import Group, Suite
from bench.workloads import Workload, frame_seen, handed_over, part, photo, photo_model, tick
from schemas.messages import Hello, write_message
from schemas.wire import IDENTIFIER

OUTSTANDING = 256
PACKED = 16
FLAT = (32, 64, 128, 256, 512)
# Of the highest throughput of the round: a load that a server in use may well have.
TAIL_SHARE = 0.7
BARE_PROCESSES = 2
BATCHES = (1, 8, 32, 64)
MIB = 1 << 20
HELLO = write_message(Hello("slotline-bench/1", (IDENTIFIER.decode(),), packed_replies=True))


def run_bars(suite: Suite) -> None:
    """Measure all figures that the suite wants, group by group."""
    limits = ("proxy.rate", "proxy.tail_us", "proxy_c.rate", "ipc.p50_us")
    fused = ("fused.rate", "fused.packed_rate", "fused.p50_us", "fused.tail_us", "fused.flat", "fused.pss_mib")
    stages = ("stages.rate", "stages.p50_us", "stages.pss_mib")
    suite.measure("ticks", (*limits, *fused, *stages), Ticks)
    suite.measure("embedded ticks", ("embedded.p50_us", "bare_run.p50_us"), Embedded)
    suite.measure("leases", ("lease.frame_us", "lease.small_us"), Leases)
    suite.measure("frames", ("frame.p50_us", "sink.p50_us"), Frames)
    suite.measure("parts", ("part.rate", "part.bare_rate"), _parts)
    suite.measure("photos", ("photo.rate", "photo.bare_rate"), _photos)


def _parts(stack: ExitStack, directory: Path, suite: Suite) -> Group:
    return Pictures(stack, directory, suite, "part", part())


def _photos(stack: ExitStack, directory: Path, suite: Suite) -> Group:
    return Pictures(stack, directory, suite, "photo", photo(photo_model(suite.data)))


def _place(directory: Path, name: str) -> Path:
    """Return a new directory of one side."""
    place = directory / name
    place.mkdir()
    return place


class Ticks:
    """The proxies, the bare round trip, Slotline in one process and with a process per stage."""

    def __init__(self, stack: ExitStack, directory: Path, suite: Suite) -> None:
        self._suite = suite
        workload = tick()
        self._requests = workload.requests
        self._packed = packed_requests(workload.lane, workload.rows, PACKED)
        proxies = {
            "proxy": proxy_echo(_place(directory, "proxy")),
            "proxy_c": proxy_echo(_place(directory, "proxy_c"), worker="c"),
        }
        self._proxies = {name: suite.start(stack, side, f"{name}.rate", f"{name}.tail_us") for name, side in proxies.items()}
        self._ipc = suite.start(stack, ipc_echo(_place(directory, "ipc")), "ipc.p50_us")
        cuts = {"fused": FUSED, "stages": STAGES}
        names = {name: [figure for figure in suite.wanted if figure.startswith(f"{name}.")] for name in cuts}
        self._slotline = {
            name: suite.start(stack, serving_text(_place(directory, name), workload.config(cut)), *names[name])
            for name, cut in cuts.items()
        }

    def round(self) -> None:
        """Measure each side once, the sides of a ratio one right after the other."""
        suite = self._suite
        for name, front in self._proxies.items():
            if front:
                suite.rate(f"{name}.rate", run_load(front, self._requests, suite.closed(OUTSTANDING, is_echo=True)))
        self._each_cut(self._loaded)
        if self._ipc:
            suite.p50("ipc.p50_us", run_load(self._ipc, self._requests, suite.closed(1, is_echo=True)))
        self._each_cut(self._alone)
        # Before the open loop, whose queue may grow without bound where the machine is too slow.
        self._each_cut(self._memory)
        self._each_cut(self._tail)
        self._each_cut(self._flat)

    def _each_cut(self, measure: Callable[[str, Server], None]) -> None:
        for name, server in self._slotline.items():
            if server:
                measure(name, server)

    def _loaded(self, name: str, server: Server) -> None:
        suite = self._suite
        if suite.wants(f"{name}.rate", f"{name}.tail_us"):
            suite.rate(f"{name}.rate", self._load(server, suite.closed(OUTSTANDING)))
        if suite.wants(f"{name}.packed_rate"):
            load = suite.closed(OUTSTANDING, hello=HELLO)
            suite.rate(f"{name}.packed_rate", self._load(server, load, self._packed))

    def _alone(self, name: str, server: Server) -> None:
        if self._suite.wants(f"{name}.p50_us"):
            self._suite.p50(f"{name}.p50_us", self._load(server, self._suite.closed(1)))

    def _memory(self, name: str, server: Server) -> None:
        """Note the memory without slots and weights."""
        if self._suite.wants(f"{name}.pss_mib") and server.pid:
            memory = usage.memory(usage.tree(server.pid))
            weights_mib = Path(str(tick().settings["model"])).stat().st_size / MIB
            self._suite.figures.add(f"{name}.pss_mib", memory.total_mib - memory.arena_mib - weights_mib)

    def _tail(self, name: str, server: Server) -> None:
        """Measure the tails of the cut and of the proxy at the same rate."""
        if not self._suite.wants(f"{name}.tail_us"):
            return
        rate = TAIL_SHARE * self._suite.figures.latest(f"{name}.rate")
        self._suite.p99(f"{name}.tail_us", self._load(server, self._suite.open(rate)))
        if front := self._proxies["proxy"]:
            self._suite.p99("proxy.tail_us", run_load(front, self._requests, self._suite.open(rate, is_echo=True)))

    def _flat(self, name: str, server: Server) -> None:
        """Measure how much of its peak is left beyond the peak."""
        if not self._suite.wants(f"{name}.flat"):
            return
        reports = [self._load(server, self._suite.closed(count, seconds=self._suite.seconds / 2)) for count in FLAT]
        rates = [report.rate for report in reports]
        unclean = next((report for report in reports if not report.is_clean), reports[0])
        self._suite.add(f"{name}.flat", min(rates[rates.index(max(rates)) :]) / max(*rates, 1e-9), unclean)

    def _load(self, server: Server, load: Load, requests: Requests | None = None) -> Report:
        return run_load(server.endpoint, requests or self._requests, load)


class Embedded:
    """Slotline in the caller's process beside the bare model; and what the model does with batches."""

    def __init__(self, stack: ExitStack, directory: Path, suite: Suite) -> None:
        workload = tick()
        self._suite = suite
        self._lane = workload.lane
        self._model = str(workload.settings["model"])
        self._config = directory / "config.toml"
        self._config.write_text(workload.config(), "utf-8")
        self._bare = stack.enter_context(bare(directory))

    def round(self) -> None:
        """Measure both, and the limits that belong to them."""
        add, seconds = self._suite.figures.add, self._suite.seconds
        found = self._bare.ask(do="embedded", config=str(self._config), lane=self._lane, seconds=seconds)
        add("embedded.p50_us", found["ours"])
        add("bare_run.p50_us", found["bare"])
        for size, us in self._bare.ask(do="batches", model=self._model, sizes=BATCHES, seconds=seconds / 10).items():
            add(f"bare_run.row_us_of_{size}", us)


class Leases:
    """A frame of 25 MB and one of 1 KB, both in place in a lease, to a lane that reads as much of either."""

    def __init__(self, stack: ExitStack, directory: Path, suite: Suite) -> None:
        workload = handed_over()
        self._suite = suite
        config = workload.config(lease_frames=len(workload.rows))
        self._server = stack.enter_context(serving_text(_place(directory, "lease"), config))
        self._client = stack.enter_context(bare(directory))

    def round(self) -> None:
        """Measure both, call by call in turn."""
        found = self._client.ask(do="handover", endpoint=self._server.endpoint, seconds=self._suite.seconds)
        self._suite.figures.add("lease.frame_us", found["large"])
        self._suite.figures.add("lease.small_us", found["small"])


class Frames:
    """6 MB frames sent to a lane that touches none of their bytes, and to a bare receiver that copies them once."""

    def __init__(self, stack: ExitStack, directory: Path, suite: Suite) -> None:
        workload = frame_seen("frame")
        self._suite = suite
        self._requests = workload.requests
        self._nbytes = workload.rows[0]["frame"].nbytes
        self._server = stack.enter_context(serving_text(_place(directory, "frame"), workload.config()))
        self._sink = stack.enter_context(ipc_sink(_place(directory, "sink")))
        self._bare = stack.enter_context(bare(directory))

    def round(self) -> None:
        """Measure both, and one copy of so many bytes."""
        suite = self._suite
        suite.p50("sink.p50_us", run_load(self._sink, self._requests, suite.closed(1, is_echo=True)))
        suite.p50("frame.p50_us", run_load(self._server.endpoint, self._requests, suite.closed(1)))
        suite.figures.add("copy.us", self._bare.ask(do="copy", nbytes=self._nbytes, seconds=suite.seconds / 10)["us"])


class Pictures:
    """Files of pictures to a lane of two replicas, and to a bare loop in one process and in two."""

    def __init__(self, stack: ExitStack, directory: Path, suite: Suite, name: str, workload: Workload) -> None:
        self._suite, self._name, self._workload = suite, name, workload
        self._requests = workload.requests
        config = workload.config(replicas=BARE_PROCESSES)
        self._server = stack.enter_context(serving_text(_place(directory, name), config))
        self._bare = [stack.enter_context(bare(directory, f"bare{index}")) for index in range(BARE_PROCESSES)]

    def round(self) -> None:
        """Measure the loops, then the lane."""
        rates = [self._loop(count) for count in (1, BARE_PROCESSES)]
        for count, rate in zip((1, BARE_PROCESSES), rates, strict=True):
            self._suite.figures.add(f"{self._name}.bare_rate_{count}", rate)
        self._suite.figures.add(f"{self._name}.bare_rate", max(rates))
        load = self._suite.closed(self._workload.outstanding)
        self._suite.rate(f"{self._name}.rate", run_load(self._server.endpoint, self._requests, load))

    def _loop(self, count: int) -> float:
        """Return what *count* processes do together in a second."""
        some = self._bare[:count]
        for process in some:
            process.order(
                do="loop", workload=self._name, model=str(self._workload.settings["model"]), seconds=self._suite.seconds
            )
        return sum(process.answer()["rate"] for process in some)
