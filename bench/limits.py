"""The bare limits, what ZeroMQ itself does on this machine: libzmq's C proxy with an echo worker, and one ipc round trip.

The echo is C, so that the limit is ZeroMQ's and not that of a language above it; the proxy is also measured with a worker of
two pyzmq calls (``send_multipart(recv_multipart())``), the least that an ordinary Python server does for a request.
``python -m bench.limits`` measures them alone.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.load import Headers, Load, Report, build, run_load
from bench.machine import describe, private_directory
from bench.pairs import Spread
from bench.processes import running
from bench.ticks import add_rows_option, tick_headers
from schemas.status import ConfigError


@contextlib.contextmanager
def proxy_echo(directory: Path, *, worker: str = "c") -> Iterator[str]:
    """Run the C proxy with one echo worker, "c" or "python", and yield the endpoint of its front."""
    front, back = f"ipc://{directory}/front.ipc", f"ipc://{directory}/back.ipc"
    module = [sys.executable, "-m", "bench.proxy"]
    echo: list[str | Path] = [build("echo"), "connect", back] if worker == "c" else [*module, "worker", back]
    with (
        running([*module, "relay", front, back], log=directory / "proxy.log"),
        running(echo, log=directory / "echo.log"),
    ):
        yield front


@contextlib.contextmanager
def ipc_echo(directory: Path) -> Iterator[str]:
    """Run a ROUTER that sends everything back and yield its endpoint."""
    endpoint = f"ipc://{directory}/echo.ipc"
    with running([build("echo"), "bind", endpoint], log=directory / "echo.log"):
        yield endpoint


def measure_proxy(headers: Headers, *, worker: str = "c", outstanding: int, seconds: float) -> Report:
    """Return what the C proxy and its *worker* do with *outstanding* requests under way."""
    with private_directory() as directory, proxy_echo(directory, worker=worker) as endpoint:
        return run_load(endpoint, headers, Load(outstanding=outstanding, seconds=seconds, is_echo=True))


def measure_round_trip(headers: Headers, *, seconds: float) -> Report:
    """Return what one request at a time takes from a DEALER to a ROUTER and back."""
    with private_directory() as directory, ipc_echo(directory) as endpoint:
        return run_load(endpoint, headers, Load(outstanding=1, seconds=seconds, is_echo=True))


def main(argv: list[str] | None = None) -> int:
    """Measure the limits in turn and print them; 0 when every request was answered once."""
    parser = argparse.ArgumentParser(prog="python -m bench.limits", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of each run (default 3)")
    parser.add_argument("--outstanding", type=int, default=256, help="requests under way at the proxy (default 256)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_rows_option(parser)
    options = parser.parse_args(argv)
    try:
        headers = tick_headers(options.rows)
        proxies: dict[str, list[Report]] = {"c": [], "python": []}
        trips: list[Report] = []
        for _ in range(options.pairs):
            for worker, reports in proxies.items():
                reports.append(measure_proxy(headers, worker=worker, outstanding=options.outstanding, seconds=options.seconds))
            trips.append(measure_round_trip(headers, seconds=options.seconds))
    except ConfigError as error:
        print(f"bench.limits: {error}", file=sys.stderr)
        return 2
    rates = {worker: Spread.of([report.rate for report in reports]) for worker, reports in proxies.items()}
    p50_us = Spread.of([report.p50_us for report in trips])
    if options.json:
        figures = {f"proxy_rate_{worker}": dataclasses.asdict(rate) for worker, rate in rates.items()}
        figures["round_trip_p50_us"] = dataclasses.asdict(p50_us)
        print(json.dumps({**figures, "header_bytes": headers.header_bytes, "machine": describe()}))
    else:
        for worker, rate in rates.items():
            print(f"C proxy, echo worker in {worker}, {options.outstanding} outstanding: {rate.text('{:,.0f}')} req/s")
        print(f"ipc DEALER/ROUTER round trip, 1 outstanding: p50 {p50_us.text('{:.1f}')} us")
    return 0 if all(report.is_clean for reports in (*proxies.values(), trips) for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
