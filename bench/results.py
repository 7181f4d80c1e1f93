"""Reports as JSON with a stable schema, and as a table. Pure but for ``envelope``, which looks at the machine and the clock.

``docs/performance.md`` describes every key. A key is never removed or given another meaning without a new SCHEMA.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from bench.load import Load, Report, Stage
from bench.machine import describe
from bench.usage import Memory
from schemas.status import VERSION

SCHEMA = 1


def envelope(kind: str, command: Sequence[str]) -> dict[str, Any]:
    """Return what every report begins with: kind is "run" or "suite"."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    machine = describe()
    revision = machine.pop("revision")
    return {
        "schema": SCHEMA,
        "kind": kind,
        "slotline": VERSION,
        "revision": revision,
        "started": now,
        "command": list(command),
        "machine": machine,
    }


def point(
    load: Load, report: Report, stages: Sequence[str], *, goodput_us: float | None, memory: Memory | None
) -> dict[str, Any]:
    """Return one measured load as JSON.

    Args:
        stages: the lane's stages by name, in the order of the report's.
        goodput_us: what counts as good; None = every result.
    """
    good = report.rate if goodput_us is None else report.latency.within(goodput_us) / report.seconds
    return {
        "mode": "open" if load.rate else "closed",
        "concurrency": None if load.rate else load.outstanding,
        "wanted_rate": load.rate or None,
        "arrivals": ("poisson" if load.is_poisson else "constant") if load.rate else None,
        "seconds": report.seconds,
        "rate": report.rate,
        "goodput": round(good, 1),
        **latency_figures(report),
        "sent": report.sent,
        "ok": report.ok,
        "errors": report.errors,
        "errors_by_code": dict(report.errors_by_code),
        "lost": report.lost,
        "doubled": report.doubled,
        "strange": report.strange,
        "clean": report.is_clean,
        "stable": report.is_stable,
        "late_us": report.late_us,
        "late_max_us": report.late_max_us,
        "server_cpu_s_per_1000": _per_1000(report.server_cpu_s, report),
        "client_cpu_s_per_1000": _per_1000(report.client_cpu_s, report),
        "backlog_us": round(report.backlog_us / report.timed, 1) if report.timed else None,
        "stages": [_stage(name, stage, report.timed) for name, stage in zip(stages, report.stages, strict=False)],
        "memory": None if memory is None else _memory(memory),
        "windows": [window._asdict() for window in report.windows],
        "curve": [[us, round(share, 6)] for us, share in report.latency.curve()] if report.latency.samples else [],
    }


def latency_figures(report: Report) -> dict[str, Any]:
    """Return the percentiles, None where there are too few samples."""
    latency = report.latency
    shares = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}
    mean_us = latency.mean_us()
    return {
        **{name: latency.percentile_us(share) for name, share in shares.items()},
        "mean_us": None if mean_us is None else round(mean_us, 1),
        "max_us": latency.max_ns / 1e3,
        "samples": latency.samples,
    }


def _per_1000(cpu_s: float | None, report: Report) -> float | None:
    """Return the CPU seconds of 1,000 results of the measured time."""
    results = report.rate * report.seconds
    return None if cpu_s is None or not results else round(cpu_s / results * 1000, 5)


def _stage(name: str, stage: Stage, replies: int) -> dict[str, Any]:
    """Return the means of a stage over the replies, and how many replies came in a batch of which size."""
    rows = sum(int(size) * count for size, count in stage.batches.items())
    return {
        "name": name,
        "queue_us": round(stage.queue_us / max(replies, 1), 1),
        "run_us": round(stage.run_us / max(replies, 1), 1),
        "batch": round(rows / max(replies, 1), 2),
        "batches": dict(stage.batches),
    }


def _memory(memory: Memory) -> dict[str, Any]:
    return {
        "pss_mib": round(memory.total_mib, 1),
        "arena_mib": round(memory.arena_mib, 1),
        "without_arena_mib": round(memory.total_mib - memory.arena_mib, 1),
        "processes": memory.processes,
    }


def table(points: Sequence[Mapping[str, Any]]) -> str:
    """Return points as aligned text, a line each."""
    names = " ".join(f"{name:>9}" for name in ("p50", "p90", "p99", "p99.9", "max us", "cpu/1000"))
    head = f"{'load':<16} {'req/s':>10} {names} {'late us':>8}  notes"
    return "\n".join([head, *map(_line, points)])


def _line(found: Mapping[str, Any]) -> str:
    load = (
        f"{found['concurrency']} outstanding"
        if found["mode"] == "closed"
        else f"{found['wanted_rate']:,.0f}/s {found['arrivals'][:5]}"
    )
    times = " ".join(f"{_number(found[name]):>9}" for name in ("p50_us", "p90_us", "p99_us", "p999_us", "max_us"))
    cpu = found["server_cpu_s_per_1000"]
    notes = [] if found["stable"] else ["not stable"]
    if not found["clean"]:
        notes.append(f"{found['errors']} errors {found['errors_by_code']}, {found['lost']} lost, {found['doubled']} doubled")
    late = _number(found["late_us"]) if found["mode"] == "open" else "-"
    return f"{load:<16} {found['rate']:>10,.0f} {times} {'-' if cpu is None else f'{cpu:.4f}':>9} {late:>8}  {'; '.join(notes)}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
