"""The promises: for each row of the suites its two figures and what their ratio must hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.pairs import Spread, ratios
from schemas.status import ConfigError


class MissingError(ConfigError):
    """Something is not here that only some rows need: they are skipped."""


@dataclass(frozen=True, slots=True)
class Row:
    """One promise about the ratio of *ours* to *limit*, both names of figures; without a limit about the figure itself.

    Args:
        hold: at least, or at most, this.
        reach: what we want.
        is_least: larger is better.
        strict: another limit that the ratio is also shown to.
        about: what it is, in words.
    """

    name: str
    ours: str
    limit: str
    hold: float
    reach: float
    is_least: bool
    about: str
    strict: str = ""

    @property
    def figures(self) -> tuple[str, ...]:
        """The figures that must be measured."""
        return tuple(name for name in (self.ours, self.limit, self.strict) if name)

    def is_held(self, value: float) -> bool:
        """True when *value* keeps the promise."""
        return value >= self.hold if self.is_least else value <= self.hold


def make_row(name: str, ours: str, limit: str, bound: tuple[float, float], about: str, strict: str = "") -> Row:
    """Return a row; its bound is (hold, reach), and the better one of the two tells in which direction it goes."""
    hold, reach = bound
    return Row(name, ours, limit, hold, reach, reach > hold, about, strict)


BARS = (
    make_row("tick_fused", "fused.rate", "proxy.rate", (0.55, 0.8), "tick, fused, 256 outstanding / C proxy", "proxy_c.rate"),
    make_row("tick_stages", "stages.rate", "proxy.rate", (0.4, 0.6), "the same, a process per stage / C proxy", "proxy_c.rate"),
    make_row("tick_packed", "fused.packed_rate", "proxy.rate", (1.0, 1.5), "16 ticks a message, fused / C proxy", "proxy_c.rate"),
    make_row("rtt_fused", "fused.p50_us", "ipc.p50_us", (5, 3), "tick p50 alone, fused / bare ipc round trip"),
    make_row("rtt_stages", "stages.p50_us", "ipc.p50_us", (8, 5), "tick p50 alone, a process per stage / bare ipc round trip"),
    make_row("tail", "fused.tail_us", "proxy.tail_us", (2, 1.5), "tick p99 at 70 % of own peak / C proxy at that rate"),
    make_row("embedded", "embedded.p50_us", "bare_run.p50_us", (3, 1.5), "tick p50 in the caller's process / bare run"),
    make_row("photo", "photo.rate", "photo.bare_rate", (0.95, 0.98), "photos / the better bare loop"),
    make_row("part", "part.rate", "part.bare_rate", (0.9, 0.95), "parts / the better bare loop"),
    make_row("lease_flat", "lease.frame_us", "lease.small_us", (1.5, 1.1), "25 MB by lease: hand-over p50 / of 1 KB"),
    make_row("frame_send", "frame.p50_us", "sink.p50_us", (1.3, 1.15), "6 MB sent / bare receive and one copy"),
    make_row("flat", "fused.flat", "", (0.9, 0.95), "throughput beyond its peak, up to 512 outstanding / peak"),
    make_row("pss_stages", "stages.pss_mib", "", (120, 80), "MiB of one tick lane, a process per stage"),
    make_row("pss_fused", "fused.pss_mib", "", (90, 60), "MiB of one tick lane, fused"),
)


@dataclass(slots=True)
class Figures:
    """Everything measured so far: for each figure one value a round, what was not clean, and what could not be measured."""

    values: dict[str, list[float]] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: float | None, fault: str = "") -> None:
        """Book the value of one round; None (too few samples) is a fault."""
        self.values.setdefault(name, []).append(0.0 if value is None else value)
        if fault or value is None:
            self.faults.setdefault(name, []).append(fault or "too few samples for this percentile")

    def latest(self, name: str) -> float:
        """Return the value of the last round."""
        return self.values[name][-1]

    def summary(self) -> dict[str, dict[str, Any]]:
        """Return each figure with median, least, most and the value of each round."""
        return {name: {**asdict(Spread.of(values)), "values": values} for name, values in self.values.items()}


def chosen(rows: Sequence[Row], names: Iterable[str]) -> list[Row]:
    """Return those of *rows* that are named, all when none is.

    Raises:
        ConfigError: a name that no row has.
    """
    wanted = list(names)
    unknown = set(wanted) - {row.name for row in rows}
    if unknown:
        raise ConfigError(f"--rows: no {', '.join(sorted(unknown))}; there are {', '.join(row.name for row in rows)}")
    return [row for row in rows if not wanted or row.name in wanted]


def outcome(row: Row, figures: Figures) -> dict[str, Any]:
    """Return what became of *row*: value, spread, ok, hold, reach; or why it was skipped."""
    bounds = {"hold": row.hold, "reach": row.reach, "at_least": row.is_least, "about": row.about}
    reason = next((figures.skipped[name] for name in row.figures if name in figures.skipped), "")
    if reason:
        return {"value": None, "spread": None, "ok": None, "skipped": reason, **bounds}
    faults = [fault for name in row.figures for fault in figures.faults.get(name, [])]
    spread = _spread(row.ours, row.limit, figures)
    found: dict[str, Any] = {"value": None, "spread": None, "ok": False, **bounds}
    if spread is not None:
        found |= {"value": round(spread.median, 4), "spread": [round(spread.least, 4), round(spread.most, 4)]}
        found["ok"] = row.is_held(spread.median) and not faults
    if row.strict and (strict := _spread(row.ours, row.strict, figures)):
        found["strict"] = {"limit": row.strict, "value": round(strict.median, 4), "spread": [strict.least, strict.most]}
    return found | ({"faults": faults} if faults else {})


def _spread(ours: str, limit: str, figures: Figures) -> Spread | None:
    """Return the spread over the rounds; None when a side was not measured, or a limit is 0, which its faults explain."""
    values, limits = figures.values.get(ours, []), figures.values.get(limit, [])
    if not values or 0 in limits or (limit and not limits):
        return None
    return Spread.of(ratios(values, limits) if limit else values)


def table(outcomes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the outcomes as aligned text."""
    lines = [f"{'row':<15} {'median':>8} {'least..most':<18} {'hold':<9} {'reach':<7} {'':<8} what"]
    for name, found in outcomes.items():
        sign = ">=" if found["at_least"] else "<="
        bounds = f"{sign} {found['hold']:<6g} {found['reach']:<7g}"
        if found.get("skipped"):
            lines.append(f"{name:<15} {'-':>8} {'':<18} {bounds} {'skipped':<8} {found['skipped']}")
            continue
        verdict = "held" if found["ok"] else "MISSED"
        spread = "" if found["spread"] is None else "{:.2f}..{:.2f}".format(*found["spread"])
        value = "-" if found["value"] is None else f"{found['value']:.2f}"
        lines.append(f"{name:<15} {value:>8} {spread:<18} {bounds} {verdict:<8} {found['about']}")
        if strict := found.get("strict"):
            lines.append(f"{'':<15} {strict['value']:>8.2f} with {strict['limit']}")
    return "\n".join(lines)


def figure_table(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the figures behind the rows as aligned text."""
    lines = [
        f"{name:<24} {found['median']:>14,.1f}  ({found['least']:,.1f}..{found['most']:,.1f})" for name, found in figures.items()
    ]
    return "\n".join(lines)
