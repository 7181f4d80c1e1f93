"""The command line of the benchmark: its options, and what they mean together. Nothing is measured here."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from bench.workloads import DATA_VARIABLE
from schemas.status import ConfigError

MAX_CONCURRENCY = 512
MAX_RATE = 1e8
MAX_COUNT = 1024
WORKLOADS = ("tick", "part", "photo", "frame", "frame25", "echo")
SUITES = ("bars", "peers")
EPILOG = """examples:
  %(prog)s tick --concurrency 1,16,256                  a shipped workload, closed loop
  %(prog)s my.toml --model qc --input a.png             serve your config, load one of its lanes
  %(prog)s --endpoint ipc://run/slotline.ipc --model qc --input a.png --rate 200 --arrivals poisson
  %(prog)s frame25 --lease --concurrency 1,4            25 MB frames that are handed over instead of sent
  %(prog)s tick --search --p99-us 2000                  the highest rate with a p99 of at most 2 ms
  %(prog)s tick --json --assert 'p99_us<=5000' --assert 'errors==0'
  %(prog)s --suite bars --json                          the project's promises beside the bare limits
  %(prog)s --compare before.json after.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the options of the benchmark."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "Measure a config, a running server or a shipped workload; or the promises of the project."
    parser.epilog = EPILOG
    target = parser.add_argument_group("what is measured")
    target.add_argument("target", nargs="?", help=f"{', '.join(WORKLOADS)}; or a config file, or `demo`: it is served meanwhile")
    target.add_argument("--endpoint", help="a running server instead")
    target.add_argument("--model", help="the lane, when there are several")
    target.add_argument(
        "--input", type=Path, action="append", default=[], metavar="FILE", help="what is sent, in turn: .npy, .npz, or encoded"
    )
    target.add_argument(
        "--shape", action="append", default=[], metavar="NAME=DIMS", help="of a random input whose sizes are open"
    )
    target.add_argument("--cut", choices=("fused", "stages"), default="fused", help="of a workload: one process, or one a stage")
    target.add_argument("--replicas", type=_count, default=1, help="of a workload's processes (default: 1)")
    target.add_argument("--data", type=Path, metavar="DIR", help=f"has the photo workload's model (default: ${DATA_VARIABLE})")
    _add_load(parser.add_argument_group("how it is loaded"))
    output = parser.add_argument_group("what comes out")
    output.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
    output.add_argument("--out", type=Path, metavar="FILE", help="write that JSON object to a file")
    output.add_argument("--plots", type=Path, metavar="DIR", help="draw PNG plots (pip install 'slotline[bench]')")
    output.add_argument(
        "--assert", dest="claims", action="append", default=[], metavar="CLAIM", help="exit with 1 unless it holds"
    )
    output.add_argument(
        "--compare", nargs=2, type=Path, metavar=("A", "B"), help="say what changed from one JSON file to another"
    )
    suite = parser.add_argument_group("the promises")
    suite.add_argument("--suite", choices=SUITES, help="beside the bare limits, or beside other servers")
    suite.add_argument("--rows", default="", metavar="A,B", help="only these rows")
    suite.add_argument("--pairs", type=_count, default=5, help="rounds (default: %(default)s)")


def _add_load(load: argparse._ArgumentGroup) -> None:
    load.add_argument(
        "--concurrency", default="", metavar="LIST", help="closed loop: requests under way, such as 1,8,64 or 1..512"
    )
    load.add_argument("--rate", default="", metavar="LIST", help="open loop: requests per second")
    load.add_argument(
        "--arrivals", choices=("constant", "poisson"), default="poisson", help="of an open loop (default: %(default)s)"
    )
    load.add_argument("--search", action="store_true", help="find the highest rate that keeps --p99-us")
    load.add_argument("--p99-us", type=_positive, help="what --search must keep, in microseconds")
    load.add_argument("--goodput-us", type=_positive, help="count only results within so many microseconds as goodput")
    load.add_argument("--seconds", type=_positive, help="measured time of each load (default: 3; in a suite 2)")
    load.add_argument("--warm-up", type=_seconds, help="seconds before, which do not count (default: 1; in a suite 0.5)")
    load.add_argument("--window", type=_positive, default=0.5, help="seconds of one window of the stability rule (default: 0.5)")
    load.add_argument("--connections", type=_count, default=1, help="of the generator (default: 1)")
    load.add_argument("--packed", type=_count, default=1, help="requests in one message, for one small input (default: 1)")
    load.add_argument(
        "--lease", action="store_true", help="requests lie in shared memory that the server lends: its config has [leases]"
    )
    load.add_argument("--generator", choices=("auto", "c", "python"), default="auto", help="auto: C where it compiles")


def concurrencies(text: str) -> list[int]:
    """Return the closed loops that *text* asks for: numbers, or doublings from one to another.

    Raises:
        ConfigError: something else.
    """
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, dots, last = part.partition("..")
        ends = [int(end) if end.isdecimal() else 0 for end in ([first, last] if dots else [first])]
        if not all(1 <= end <= MAX_CONCURRENCY for end in ends) or ends[0] > ends[-1]:
            raise ConfigError(f"--concurrency {text}: expected numbers from 1 to {MAX_CONCURRENCY}, such as 1,8,64 or 1..512")
        found += _doublings(*ends) if dots else ends
    return found


def rates(text: str) -> list[float]:
    """Return the open loops that *text* asks for.

    Raises:
        ConfigError: something that is no rate.
    """
    try:
        found = [float(part) for part in filter(None, text.split(","))]
    except ValueError:
        found = [0.0]
    if not all(0 < rate <= MAX_RATE for rate in found):
        raise ConfigError(f"--rate {text}: expected requests per second, such as 1000 or 1000,2000")
    return found


def shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes that were given by name.

    Raises:
        ConfigError: not NAME=DIMS.
    """
    found = {}
    for text in texts:
        name, _, dims = text.partition("=")
        sizes = dims.split(",")
        if not name or not all(size.isdecimal() and int(size) for size in sizes):
            raise ConfigError(f"--shape {text}: expected NAME=DIMS, such as image=1,3,224,224")
        found[name] = tuple(map(int, sizes))
    return found


def _doublings(first: int, last: int) -> list[int]:
    """Return first, 2 first, 4 first ... and last."""
    found = [first]
    while found[-1] * 2 < last:
        found.append(found[-1] * 2)
    return found + [last] * (last > first)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_COUNT:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MAX_COUNT}, got {text!r}")
    return int(text)


def _positive(text: str) -> float:
    value = _number(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number above 0 and below 1000000000, got {text!r}")
    return value


def _seconds(text: str) -> float:
    value = _number(text)
    if not 0 <= value < 3600:
        raise argparse.ArgumentTypeError(f"expected seconds from 0 to below 3600, got {text!r}")
    return value


def _number(text: str) -> float:
    """Return the number that *text* is, what is no number for none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
