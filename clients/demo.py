"""The demo's client side: real part photos and market features through a running server, by the ordinary client.

Nothing here knows how the answers should look; that is compared by the caller.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.arrays import Encoded

from .annotate import CLASS_NAMES
from .client import Client
from .local import LocalServer

# Ticks sent one at a time, for the latency; the others go many at once, for the rate.
MAX_ALONE = 2_000
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """One photo: what came back and what was true. *stage_us* is the run time of each stage."""

    file: str
    verdict: str
    label: str
    score: float
    boxes: NDArray[np.float32]
    stage_us: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return what the demo's JSON says of the part."""
        boxes = [
            {"class": CLASS_NAMES[int(row[4])], "xyxy": [int(v) for v in row[:4]], "score": round(float(row[5]), 4)}
            for row in self.boxes
        ]
        return {"file": self.file, "verdict": self.verdict, "label": self.label, "score": round(self.score, 4), "boxes": boxes}


@dataclass(frozen=True, slots=True)
class TickRun:
    """A stream of ticks: its outputs (count, 1) by name, and how fast it was."""

    outputs: dict[str, NDArray[np.float32]]
    count: int
    p50_us: float
    p99_us: float
    rate: float


@dataclass(frozen=True, slots=True)
class DemoRun:
    """Everything that came back, and the server's own count of it."""

    parts: list[JudgedPart]
    stages: tuple[str, ...]
    ticks: TickRun
    ledger: Mapping[str, Any]

    @property
    def right(self) -> int:
        """How many verdicts agree with their label."""
        return sum(part.verdict == part.label for part in self.parts)

    @property
    def sent(self) -> int:
        """How many requests were sent."""
        return len(self.parts) + self.ticks.count

    @property
    def is_complete(self) -> bool:
        """True when the server's books say that each request was received and answered once."""
        books = self.ledger
        return books["received"] == books["answered"] == self.sent and books["balanced"] and not books["in_flight"]

    def to_json(self) -> dict[str, Any]:
        """Return the demo's JSON."""
        ticks = {"count": self.ticks.count, "p50_us": self.ticks.p50_us, "p99_us": self.ticks.p99_us, "rate": self.ticks.rate}
        return {"qc": [part.to_json() for part in self.parts], "ticks": ticks, "ledger": dict(self.ledger)}

    def to_text(self) -> str:
        """Return the report for people."""
        ticks = self.ticks
        return f"""{part_table(self.parts, self.stages)}

(! = the verdict differs from the label; infer us is the time of the request's whole batch)
qc: {self.right} of {len(self.parts)} verdicts right
ticks: {ticks.count}; one at a time p50 {ticks.p50_us:.0f} us, p99 {ticks.p99_us:.0f} us; many at once {ticks.rate:,.0f}/s
       (the model forecasts volatility; its p_up is hardly better than a coin, and no edge in direction is claimed)
all {self.sent} requests answered once: {"yes" if self.is_complete else "NO"}"""


def run_demo(server: LocalServer, directory: Path, features: NDArray[np.float32], count: int, progress: Progress) -> DemoRun:
    """Send the photos of *directory* and *count* ticks to *server*, then read its books."""
    with Client(server.endpoint, timeout_s=30.0) as client:
        parts = judge_parts(client, directory)
        stages = client.metadata("qc").stages
        ticks = stream_ticks(client, features, count, progress)
    with Client(server.control) as client:
        counters = {name.removeprefix("ledger."): v for name, v in client.stats().items() if name.startswith("ledger.")}
    return DemoRun(parts, stages, ticks, {name: value for name, value in counters.items() if "." not in name})


def judge_parts(client: Client, directory: Path) -> list[JudgedPart]:
    """Send every photo of *directory* (with its labels.json) to the lane ``qc``, all at once."""
    labels = json.loads((directory / "labels.json").read_text())
    names = sorted(labels)
    results = client.infer_many("qc", [{"image": Encoded((directory / name).read_bytes(), "image/png")} for name in names])
    return [
        JudgedPart(
            file=name,
            verdict=result["verdict"][0].decode(),
            label="OK" if labels[name]["ok"] else "NG",
            score=float(result["score"][0]),
            boxes=result["boxes"],
            stage_us=tuple(run_us for _, run_us, _ in result.timing),
        )
        for name, result in zip(names, results, strict=True)
    ]


def stream_ticks(client: Client, features: NDArray[np.float32], count: int, progress: Progress) -> TickRun:
    """Send *count* ticks to the lane ``ticks``: some one at a time, the rest as many at once as the client sends.

    Args:
        features: (rows, 67) float32, cycled.
    """
    rows = np.resize(features, (count, features.shape[1]))
    alone = min(MAX_ALONE, (count + 1) // 2)
    results = []
    waits_us = np.empty(alone)
    for at in range(alone):
        began = time.perf_counter()
        results.append(client.infer("ticks", {"features": rows[at : at + 1]}))
        waits_us[at] = (time.perf_counter() - began) * 1e6
    progress(f"{alone} ticks one at a time")
    began = time.perf_counter()
    step = 5_000
    for at in range(alone, count, step):
        results += client.infer_many("ticks", [{"features": rows[i : i + 1]} for i in range(at, min(at + step, count))])
        progress(f"{min(at + step, count)} of {count} ticks")
    seconds = time.perf_counter() - began
    outputs = {name: np.concatenate([result[name] for result in results]) for name in results[0]}
    p50_us, p99_us = (float(np.percentile(waits_us, q)) for q in (50, 99))
    return TickRun(outputs, count, p50_us, p99_us, (count - alone) / seconds if count > alone else alone / waits_us.sum() * 1e6)


def part_table(parts: Sequence[JudgedPart], stages: Sequence[str]) -> str:
    """Return the parts as a table for people: file, verdict, label, defects, and microseconds per stage (infer: of its batch)."""
    shown = [stage for at, stage in enumerate(stages) if any(part.stage_us[at] for part in parts)]
    at = [stages.index(stage) for stage in shown]
    head = f"{'file':<18} {'verdict':<8} {'label':<6} " + " ".join(f"{stage + ' us':>15}" for stage in shown) + "  defects"
    lines = [head, "-" * len(head)]
    for part in parts:
        wrong = " " if part.verdict == part.label else "!"
        defects = "; ".join(
            f"{box['class']} {box['score']:.2f} at {','.join(map(str, box['xyxy']))}" for box in part.to_json()["boxes"]
        )
        times = " ".join(f"{part.stage_us[i]:>15,}" for i in at)
        lines.append(f"{part.file:<18} {part.verdict + wrong:<8} {part.label:<6} {times}  {defects}")
    return "\n".join(lines)
