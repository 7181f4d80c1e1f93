"""The command ``chaos``: which scenarios run on which config, the table and JSON of what came of them, and the exit code."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.asserts import Claim, broken, read_claim, value_of
from bench.chaos import lanes
from bench.chaos.probe import probe
from bench.chaos.rig import Rig, Setting
from bench.chaos.scenarios import NOT_IN_ALL, SCENARIOS
from bench.chaos.supply import Supply
from schemas.status import ConfigError

ALL = "all"
EPILOG = """scenarios:
{}
  all{:<16}every one but soak, each for so many seconds

It exits with 0 only if no request was lost, doubled or answered wrongly, the ledger balances with every slot free, no process,
socket, file or shared memory is left behind, and every --assert holds.

examples:
  %(prog)s --scenario kill --seconds 60 --json
  %(prog)s demo --scenario all --seconds 20 --cut fused
  %(prog)s my.toml --scenario broker_kill --seconds 60 --assert 'recovery_ms<=3000' --assert 'ok>1000'
"""
COLUMNS = (
    ("scenario", 16), ("sent", 9), ("ok", 9), ("errors", 7), ("lost", 5), ("doubled", 8), ("wrong", 6), ("ended", 6),
    ("kills", 6), ("in hand", 8), ("recovery ms", 12), ("verdict", 0),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    names = "\n".join(f"  {name:<18} {scenario.about}" for name, scenario in SCENARIOS.items())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG.format(names, "")
    parser.add_argument(
        "config", metavar="CONFIG", nargs="?", default=lanes.BUILT_IN, help="a TOML file, `demo`, or the built-in lane `chaos`"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
    parser.add_argument("--scenario", default=ALL, choices=(*SCENARIOS, ALL), metavar="NAME", help="see below (default: all)")
    parser.add_argument("--seconds", type=_positive, default=10.0, help="length of each scenario (default: %(default)s)")
    parser.add_argument("--rate", type=_positive, default=0.0, help="requests a second (default: as many as keep 64 under way)")
    parser.add_argument("--cut", choices=tuple(lanes.CUTS), help="stages in one process or one each; not with a file of yours")
    parser.add_argument("--seed", type=int, default=1, help="of what is sent, and of whom it strikes (default: %(default)s)")
    parser.add_argument(
        "--assert", dest="claims", action="append", default=[], metavar="EXPR", help="for example 'recovery_ms<=3000'"
    )
    parser.add_argument("--log", type=Path, metavar="DIR", help="write each send and each final of the checkers there")


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and below 1000000, got {text!r}")
    return value


def run(options: argparse.Namespace) -> int:
    """Run the scenarios that are asked for; return the exit code."""
    claims = [read_claim(text) for text in options.claims]
    if options.log is not None and not options.log.is_dir():
        raise ConfigError(f"--log: expected a directory that exists, got {options.log}")
    names = [name for name in SCENARIOS if name not in NOT_IN_ALL] if options.scenario == ALL else [options.scenario]
    results = []
    for name in names:
        _say(f"{name}: {SCENARIOS[name].about}")
        results.append(_play(name, options))
    empty = _about_nothing(results, claims)
    verdicts = [_verdict(result, claims, is_one=len(results) == 1) for result in results]
    for result, faults in zip(results, verdicts, strict=True):
        result["passed"] = not faults
        for fault in faults:
            _say(f"{result['scenario']}: {fault}")
    for line in empty if len(results) > 1 else ():
        _say(line)
    if options.json:
        print(json.dumps({"scenarios": results} if options.scenario == ALL else results[0]))
    else:
        print(_table(results))
    return 1 if empty or any(verdicts) else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _play(name: str, options: argparse.Namespace) -> dict[str, Any]:
    with _place() as place:
        rig = Rig(_setting(name, options, place), place, lambda text: _say(f"  {text}"))
        try:
            SCENARIOS[name].play(rig)
        except BaseException:
            shutil.copy(place / "stderr", Path(tempfile.gettempdir()) / f"slotline-chaos-{name}.stderr")
            raise
        finally:
            rig.close()
        return rig.result(name)


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    """Yield a directory with a name short enough for ipc, removed at the end."""
    made = Path(tempfile.mkdtemp(prefix="slc-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _setting(name: str, options: argparse.Namespace, place: Path) -> Setting:
    """Return what the run is asked for; a user's config is probed for its answers first."""
    cut = options.cut or "stages"
    common = {"seconds": options.seconds, "rate": options.rate, "seed": options.seed, "cut": cut, "log": options.log}
    if options.config == lanes.BUILT_IN or SCENARIOS[name].own_config:
        return Setting(lanes.built_in(cut), Supply("digests"), **common)
    if options.config == lanes.DEMO:
        return Setting(lanes.demo(cut), Supply("demo"), **common)
    if options.cut:
        raise ConfigError("--cut: a config file says its cut itself (lane.NAME.processes)")
    path = Path(options.config).absolute()
    pool = probe(path, place, options.seed)
    return Setting(path, Supply("pool", pool=str(pool)), **{**common, "cut": "file"})


def _verdict(result: dict[str, Any], claims: list[Claim], *, is_one: bool) -> list[str]:
    """Return why a scenario is not passed, a line each. Of several scenarios, a claim holds for those that have its number."""
    faults = [f"{result[name]} {name}" for name in ("lost", "doubled", "wrong") if result[name]]
    if not result["balanced"]:
        faults.append(f"the server did not come to rest: {', '.join(result['unrest'])}")
    faults += [f"left behind: {what}" for what in result["left_behind"]]
    if result.get("silent"):
        faults.append(f"{result['silent']} starts ended without a word, or not at all")
    if not is_one:
        claims = [claim for claim in claims if _has_number(result, claim)]
    return faults + broken(claims, result)


def _has_number(result: dict[str, Any], claim: Claim) -> bool:
    try:
        return value_of(result, claim.name) is not None
    except KeyError:
        return False


def _about_nothing(results: list[dict[str, Any]], claims: list[Claim]) -> list[str]:
    """Return a line for each claim about what has a number in none of *results*: it would hold for nothing.

    Raises:
        ConfigError: a name that none of them has at all.
    """
    every = {name: value for result in results for name, value in result.items()}
    return broken([claim for claim in claims if not any(_has_number(result, claim) for result in results)], every)


def _table(results: list[dict[str, Any]]) -> str:
    """Return the results for people."""
    lines = [
        "".join(f"{title:>{width}}" if at else f"{title:<{width}}" for at, (title, width) in enumerate(COLUMNS[:-1]))
        + "  verdict"
    ]
    for result in results:
        recovery = "-" if result["recovery_ms"] is None else f"{result['recovery_ms']:.0f}"
        cells = [
            result["scenario"], result["sent"], result["ok"], sum(result["errors"].values()), result["lost"], result["doubled"],
            result["wrong"], result["ended_by_epoch"], result["kills"], result["kills_in_hand"], recovery,
        ]  # fmt: skip
        row = "".join(
            f"{cell:>{width}}" if at else f"{cell:<{width}}"
            for at, (cell, (_, width)) in enumerate(zip(cells, COLUMNS, strict=False))
        )
        lines.append(f"{row}  {'passed' if result['passed'] else 'FAILED'}")
    return "\n".join(lines)
