"""The first benchmark: Slotline's ticks, fused and with one process per stage, beside what ZeroMQ itself can do.

Each round runs every side once, one after the other, all under the same generator with the same request bytes; ratios are taken
per round. Exit status 0 when every bar is held and every request was answered once.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.limits import measure_proxy, measure_round_trip
from bench.load import Headers, Load, Report, run_load
from bench.machine import describe, private_directory
from bench.pairs import Bar, Spread, ratios
from bench.processes import REPO, running
from bench.ticks import MODEL, add_rows_option, tick_headers
from schemas.status import ConfigError

OUTSTANDING = 256
CUTS: dict[str, list[list[str]]] = {
    "fused": [["decode", "preprocess", "infer", "postprocess"]],
    "stages": [["decode"], ["preprocess"], ["infer"], ["postprocess"]],
}
# The proxy's echo worker in C, and in Python: what a reader takes for "the C proxy" differs by a factor of 2 to 3.
PROXIES = {"proxy": "c", "proxy_python": "python"}
RATE_BARS = (
    Bar("tick_fused", "fused", "proxy", 0.35, True),
    Bar("tick_stages", "stages", "proxy", 0.2, True),
    Bar("tick_fused_py", "fused", "proxy_python", 0.35, True),
    Bar("tick_stages_py", "stages", "proxy_python", 0.2, True),
)
RTT_BARS = (Bar("rtt_fused", "fused", "ipc", 7, False), Bar("rtt_stages", "stages", "ipc", 10, False))
# Slots and backlog hold all that the generator has under way: nothing is refused, the pipeline itself is measured.
LANE_CONFIG = """\
[server]
endpoint = {endpoint}
[lane.ticks]
model = {model}
slots = 512
max_encoded_bytes = 4096
max_batch_size = 64
backlog = 4096
processes = {processes}
"""


@dataclass(slots=True)
class Runs:
    """All reports so far, a list per side: ``loaded`` with OUTSTANDING requests under way, ``single`` with one."""

    loaded: dict[str, list[Report]]
    single: dict[str, list[Report]]

    def add(self, side: str, *, loaded: Report | None = None, single: Report | None = None) -> None:
        """Book the reports of one round of *side*."""
        if loaded is not None:
            self.loaded.setdefault(side, []).append(loaded)
        if single is not None:
            self.single.setdefault(side, []).append(single)

    def unclean(self) -> list[str]:
        """Return a line for each run in which a request was not answered once, with a result."""
        return [
            f"{side}: of {report.sent} sent: {report.errors} errors {dict(report.errors_by_code)}, {report.lost} lost, "
            f"{report.doubled} doubled, {report.strange} strange"
            for reports in (self.loaded, self.single)
            for side, runs in reports.items()
            for report in runs
            if not report.is_clean
        ]


@dataclass(frozen=True, slots=True)
class Row:
    """One bar as measured. *ours* and *limit* in requests/s or microseconds, *ratio* over the pairs."""

    bar: Bar
    ours: Spread
    limit: Spread
    ratio: Spread

    @property
    def is_held(self) -> bool:
        """True when the median ratio keeps the promise."""
        return self.bar.is_held(self.ratio.median)


def write_config(directory: Path, *, model: Path, processes: Sequence[Sequence[str]]) -> Path:
    """Write the configuration of the tick lane cut into *processes* to *directory* and return its path."""
    path = directory / "ticks.toml"
    # A JSON string or list of strings is a TOML one too.
    values = {"endpoint": f"ipc://{directory}/slotline.ipc", "model": str(model.resolve()), "processes": processes}
    path.write_text(LANE_CONFIG.format(**{name: json.dumps(value) for name, value in values.items()}), "utf-8")
    return path


@contextlib.contextmanager
def slotline(directory: Path, *, model: Path, processes: Sequence[Sequence[str]]) -> Iterator[str]:
    """Serve the tick lane cut into *processes* and yield its endpoint."""
    config = write_config(directory, model=model, processes=processes)
    with running([sys.executable, REPO / "run.py", "serve", config], log=directory / "serve.log") as words:
        yield words[1]


def measure_slotline(runs: Runs, side: str, headers: Headers, *, model: Path, seconds: float) -> None:
    """Start the cut *side*, measure it loaded and idle, and end it."""
    with private_directory() as directory, slotline(directory, model=model, processes=CUTS[side]) as endpoint:
        loaded = run_load(endpoint, headers, Load(outstanding=OUTSTANDING, seconds=seconds))
        runs.add(side, loaded=loaded, single=run_load(endpoint, headers, Load(outstanding=1, seconds=seconds)))


def measure(headers: Headers, *, model: Path, pairs: int, seconds: float) -> Runs:
    """Return *pairs* rounds of every side."""
    runs = Runs({}, {})
    for number in range(1, pairs + 1):
        print(f"round {number} of {pairs}", file=sys.stderr)
        for side, worker in PROXIES.items():
            runs.add(side, loaded=measure_proxy(headers, worker=worker, outstanding=OUTSTANDING, seconds=seconds))
        runs.add("ipc", single=measure_round_trip(headers, seconds=seconds))
        for side in CUTS:
            measure_slotline(runs, side, headers, model=model, seconds=seconds)
    return runs


def rows(runs: Runs) -> list[Row]:
    """Return what became of each bar."""
    rates = {side: [report.rate for report in reports] for side, reports in runs.loaded.items()}
    medians_us = {side: [report.p50_us for report in reports] for side, reports in runs.single.items()}
    return [_row(bar, rates) for bar in RATE_BARS] + [_row(bar, medians_us) for bar in RTT_BARS]


def _row(bar: Bar, figures: dict[str, list[float]]) -> Row:
    """Return *bar* filled with the *figures* of its two sides."""
    ours, limit = figures[bar.ours], figures[bar.limit]
    return Row(bar, Spread.of(ours), Spread.of(limit), Spread.of(ratios(ours, limit)))


def table(measured: Sequence[Row]) -> str:
    """Return the rows as aligned text, medians with least..most."""
    lines = [f"{'row':<15} {'Slotline':<34} {'limit':<34} {'ratio':<20} hold"]
    for row in measured:
        pattern, unit = ("{:,.0f}", "req/s") if row.bar in RATE_BARS else ("{:.1f}", "us")
        ours, limit = f"{row.ours.text(pattern)} {unit}", f"{row.limit.text(pattern)} {unit}"
        sign, verdict = (">=" if row.bar.is_least else "<="), ("held" if row.is_held else "MISSED")
        lines.append(
            f"{row.bar.name:<15} {ours:<34} {limit:<34} {row.ratio.text('{:.2f}'):<20} {sign} {row.bar.hold:g} {verdict}"
        )
    return "\n".join(lines)


def as_json(measured: Sequence[Row], runs: Runs, headers: Headers) -> str:
    """Return everything as one JSON object: the ratios, each report, and what it was measured on."""
    reports = {
        name: {side: [dataclasses.asdict(report) for report in of_side] for side, of_side in sides.items()}
        for name, sides in (("loaded", runs.loaded), ("single", runs.single))
    }
    summary = {
        row.bar.name: {
            "value": row.ratio.median,
            "spread": [row.ratio.least, row.ratio.most],
            "hold": row.bar.hold,
            "ok": row.is_held,
        }
        for row in measured
    }
    return json.dumps({"ratios": summary, "runs": reports, "header_bytes": headers.header_bytes, "machine": describe()})


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.first", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of each run (default 3)")
    parser.add_argument("--model", type=Path, default=MODEL, help="the tick model (default: the demo's)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    add_rows_option(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    options = _options(argv)
    try:
        headers = tick_headers(options.rows)
        runs = measure(headers, model=options.model, pairs=options.pairs, seconds=options.seconds)
    except ConfigError as error:
        print(f"bench.first: {error}", file=sys.stderr)
        return 2
    measured = rows(runs)
    print(as_json(measured, runs, headers) if options.json else table(measured))
    if not options.json:
        print("\n".join(f"{name}: {value}" for name, value in describe().items()))
    unclean = runs.unclean()
    for line in unclean:
        print(f"bench.first: {line}", file=sys.stderr)
    return 0 if all(row.is_held for row in measured) and not unclean else 1


if __name__ == "__main__":
    sys.exit(main())
