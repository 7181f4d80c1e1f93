"""``run.py bench``: one run, a sweep, a search, a suite or a comparison, and what is told of it."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import usage
from bench.arguments import add_arguments, concurrencies, rates
from bench.asserts import Claim, broken, read_claim
from bench.bars import HELLO, run_bars
from bench.build import build
from bench.compare import compare_files
from bench.load import LEASE, PYTHON, C, Load, Report, run_load
from bench.peers.suite import ROWS, run_peers
from bench.results import envelope, point, table
from bench.rows import BARS, Figures, chosen, figure_table, outcome
from bench.rows import table as rows_table
from bench.search import RateSearch
from bench.suite import Suite
from bench.target import Target, open_target
from schemas.status import ConfigError

__all__ = ["add_arguments", "run"]

# The search starts from what a closed loop of this many makes, and somewhat above.
SEARCH_OUTSTANDING = 256
SEARCH_ABOVE = 1.2
# An open loop that falls further behind its schedule has not been served at that rate.
KEPT_UP = 0.95


def run(options: argparse.Namespace) -> int:
    """Do what the command line says; 0 when every answer came and every claim and promise was kept."""
    claims = [read_claim(text) for text in options.claims]
    if options.compare:
        print(compare_files(*options.compare))
        return 0
    draw = _plots(options.plots)
    if options.suite:
        return _suite(options, claims)
    found, is_clean = _run(options)
    draw(found)
    return _tell(options, found, table(found["points"]), claims, is_clean)


def _run(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Measure the loads that were asked for; return the report, and whether every request was answered once."""
    wanted = _loads(options)
    report = envelope("run", _words(options))
    with open_target(options) as target:
        report |= {"target": target.about, "request_bytes": target.requests.message_bytes, "generator": _generator(options)}
        if options.search:
            report |= _search(options, target)
        else:
            loads = wanted or [_load(options, outstanding=target.outstanding)]
            report["points"] = [_measure(options, target, load)[1] for load in loads]
    return report, all(found["clean"] for found in report["points"])


def _loads(options: argparse.Namespace) -> list[Load]:
    """Return the loads that the command line lists.

    Raises:
        ConfigError: options that contradict each other.
    """
    if options.search and (options.concurrency or options.rate or not options.p99_us):
        raise ConfigError("--search needs --p99-us, and neither --concurrency nor --rate: it finds the rate")
    if options.lease and (options.packed > 1 or options.connections > 1 or options.generator != "auto"):
        raise ConfigError(
            "--lease has a generator of its own, with one connection: give no --packed, --connections or --generator"
        )
    closed = [_load(options, outstanding=count) for count in concurrencies(options.concurrency)]
    return closed + [_load(options, rate=rate) for rate in rates(options.rate)]


def _load(options: argparse.Namespace, *, outstanding: int = 65536, rate: float = 0.0) -> Load:
    return Load(
        outstanding,
        rate=rate,
        is_poisson=rate > 0 and options.arrivals == "poisson",
        seconds=options.seconds or 3.0,
        warm_up_s=1.0 if options.warm_up is None else options.warm_up,
        window_s=options.window,
        connections=options.connections,
        hello=HELLO if options.packed > 1 else b"",
        generator=_generator(options),
    )


def _generator(options: argparse.Namespace) -> str:
    """Return which generator is used, and say it when the slow one stands in."""
    if options.lease:
        return LEASE
    if options.generator != "auto":
        return str(options.generator)
    try:
        build("load")
    except ConfigError as error:
        _progress(f"the generator in Python is used, which is several times slower: {error}")
        options.generator = PYTHON
        return PYTHON
    options.generator = C
    return C


def _measure(options: argparse.Namespace, target: Target, load: Load) -> tuple[Report, dict[str, Any]]:
    """Load the target; return the report, and what of it is told."""
    what = f"{load.rate:,.0f} requests/s" if load.rate else f"{load.outstanding} outstanding"
    _progress(f"measuring {what} for {load.seconds:g} s")
    report = run_load(target.server.endpoint, target.requests, load, server_pid=target.server.pid)
    memory = usage.memory(usage.tree(target.server.pid)) if target.server.pid else None
    return report, point(load, report, target.stages, goodput_us=options.goodput_us, memory=memory)


def _search(options: argparse.Namespace, target: Target) -> dict[str, Any]:
    """Return the highest rate that keeps the p99, and every step on the way there."""
    outstanding = target.outstanding if options.lease else SEARCH_OUTSTANDING
    peak, _ = _measure(options, target, _load(options, outstanding=outstanding))
    search = RateSearch(SEARCH_ABOVE * peak.rate)
    tried: list[dict[str, Any]] = []
    best: dict[str, Any] = {}
    while (rate := search.next_rate()) is not None:
        report, found = _measure(options, target, _load(options, rate=rate))
        p99_us = report.p99_us
        held = report.is_clean and report.rate >= KEPT_UP * rate and p99_us is not None and p99_us <= options.p99_us
        search.tell(rate, held)
        tried.append({"wanted_rate": rate, "p99_us": p99_us, "held": held})
        best = found if held else best
    if not best:
        raise ConfigError(f"--p99-us {options.p99_us:g}: no rate keeps it; the lowest that was tried is {search.failed:.0f}/s")
    return {"search": {"p99_us": options.p99_us, "rate": search.held, "tried": tried}, "points": [best]}


def _suite(options: argparse.Namespace, claims: list[Claim]) -> int:
    """Measure a suite of promises.

    Raises:
        ConfigError: an option that a suite has no use for, or a row that it does not have.
    """
    own = (options.target, options.endpoint, options.plots, options.concurrency, options.rate, options.search, options.lease)
    if any(own):
        raise ConfigError(
            "--suite has targets and loads of its own: give only --rows, --pairs, --seconds, --warm-up and --data with it"
        )
    names = [name.strip() for name in options.rows.split(",") if name.strip()]
    rows = chosen(BARS if options.suite == "bars" else ROWS, names)
    figures = Figures()
    suite = Suite(
        figures,
        wanted={name for row in rows for name in row.figures},
        data=options.data,
        pairs=options.pairs,
        seconds=options.seconds or 2.0,
        warm_up_s=0.5 if options.warm_up is None else options.warm_up,
    )
    report = envelope("suite", _words(options)) | {"suite": options.suite, "pairs": suite.pairs, "seconds": suite.seconds}
    (run_bars if options.suite == "bars" else run_peers)(suite)
    report["ratios"] = {row.name: outcome(row, figures) for row in rows}
    report["figures"] = figures.summary()
    text = rows_table(report["ratios"]) + "\n\n" + figure_table(report["figures"])
    held = all(found["ok"] is not False for found in report["ratios"].values())
    return _tell(options, report, text, claims, held)


def _tell(options: argparse.Namespace, report: Mapping[str, Any], text: str, claims: list[Claim], is_good: bool) -> int:
    """Print what was found, check what was claimed, and return the exit code."""
    whole = json.dumps(report)
    if options.out:
        options.out.write_text(whole + "\n", "utf-8")
    print(whole if options.json else text)
    # Behind the report: a claim with a typing error must not cost what was measured.
    unkept = [line for scope in _scopes(report) for line in broken(claims, scope)]
    for line in unkept:
        _progress(f"bench: not kept: {line}")
    return 0 if is_good and not unkept else 1


def _scopes(report: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what a claim is checked in: the whole report, with the figures of one load after the other."""
    for found in report.get("points", [{}]):
        yield {**report, **found}


def _plots(directory: Path | None) -> Callable[[Mapping[str, Any]], None]:
    """Return what draws a report; found out first, so that nobody measures for minutes to learn what is missing."""
    if directory is None:
        return lambda report: None
    from bench.plots import check_matplotlib, draw_all

    check_matplotlib()

    def draw(report: Mapping[str, Any]) -> None:
        for path in draw_all(report["points"], directory):
            _progress(f"drawn: {path}")

    return draw


def _words(options: argparse.Namespace) -> list[str]:
    """Return the command as it was typed."""
    return ["run.py", *sys.argv[1:]] if sys.argv[0].endswith("run.py") else [shlex.join(sys.argv)]


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
