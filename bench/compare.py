"""Two reports side by side: what changed, as ratios. Pure but for reading the files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.results import SCHEMA
from schemas.status import ConfigError

FIGURES = ("rate", "goodput", "p50_us", "p90_us", "p99_us", "p999_us", "server_cpu_s_per_1000", "client_cpu_s_per_1000")
MACHINE = ("cpu", "cpus", "kernel", "python", "libzmq", "pyzmq", "numpy", "onnxruntime", "accelerator")


def compare_files(first: Path, second: Path) -> str:
    """Return what changed from *first* to *second* as text.

    Raises:
        ConfigError: a file that is no report, or reports of different kinds.
    """
    return compare(_read(first), _read(second), names=(str(first), str(second)))


def compare(before: Mapping[str, Any], after: Mapping[str, Any], names: tuple[str, str] = ("before", "after")) -> str:
    """Return a line for each figure that both reports have, with the ratio after / before."""
    if before["kind"] != after["kind"]:
        raise ConfigError(f"{names[0]} is a {before['kind']} and {names[1]} is a {after['kind']}: compare two of a kind")
    old, new = dict(_figures(before)), dict(_figures(after))
    lines = [f"A  {names[0]}  revision {before['revision']}", f"B  {names[1]}  revision {after['revision']}"]
    lines += [f"not the same machine: {key} is {a} and {b}" for key, a, b in _differences(before["machine"], after["machine"])]
    lines += ["", f"{'figure':<40} {'A':>14} {'B':>14} {'B / A':>8}"]
    common = [name for name in old if name in new]
    if not common:
        raise ConfigError(f"{names[0]} and {names[1]} have no load or row in common")
    lines += [_line(name, old[name], new[name]) for name in common]
    lines += [f"only in A: {name}" for name in old if name not in new] + [f"only in B: {name}" for name in new if name not in old]
    return "\n".join(lines)


def _line(name: str, old: float, new: float) -> str:
    ratio = f"{new / old:.3f}" if old else "-"
    return f"{name:<40} {old:>14,.4g} {new:>14,.4g} {ratio:>8}"


def _figures(report: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield every figure that can be compared, by a name that says under which load it was measured."""
    for name, row in report.get("ratios", {}).items():
        if row["value"] is not None:
            yield name, row["value"]
    for name, figure in report.get("figures", {}).items():
        yield name, figure["median"]
    for found in report.get("points", []):
        is_closed = found["mode"] == "closed"
        load = f"{found['concurrency']} outstanding" if is_closed else f"{found['wanted_rate']:g}/s {found['arrivals']}"
        for name in FIGURES:
            if found[name] is not None:
                yield f"{load}: {name}", found[name]


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key in MACHINE:
        if before.get(key) != after.get(key):
            yield key, before.get(key), after.get(key)


def _read(path: Path) -> dict[str, Any]:
    try:
        report = json.loads(path.read_text("utf-8").splitlines()[-1])
    except (ValueError, IndexError):
        report = None
    if not isinstance(report, dict) or report.get("schema") != SCHEMA or "kind" not in report:
        raise ConfigError(f"{path}: not a report of schema {SCHEMA}; make one with --out FILE")
    return report
