"""Scenarios that measure over time: overload with its plateau, and the soak."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from bench.chaos import lanes
from bench.chaos.helpers import Helper
from bench.chaos.place import rss_mib, threads_and_descriptors
from bench.chaos.rig import Rig
from bench.chaos.supply import Supply

# The stage: 2 ms for a batch of at most 8.
TIMED = "in_call:sleep2ms:1:ticks"
FACTOR = 5
# The flood sends so many in a message, as one process of Python can.
PACKED = 16
SAMPLE_S = 0.5
SOAK_SAMPLE_S = 5.0
KILL_EVERY_S = 60.0


def overload(rig: Rig) -> None:
    """Offer five times what a timed stage can do: it does as much as before, refuses the rest at once, and keeps its memory."""
    rig.serve(config=lanes.timed(), faults=TIMED)
    rig.begin()
    peak = _peak(rig)
    flood = rig.add_checker(supply=Supply("ticks"), rate=FACTOR * peak, outstanding=20_000, packed=PACKED, budget_us=2_000_000)
    rig.add_checker(supply=Supply("ticks"), rate=100, outstanding=1000, budget_us=2_000_000)
    rig.begin()
    rig.pause(1.0)
    broker = rig.server.children()["broker"][0]
    before, began = rig.stats()["ledger.answered"], time.monotonic()
    offered = flood.order("count")["sent"]
    memory = []
    while rig.goes_on:
        memory.append(rss_mib(broker))
        rig.pause(SAMPLE_S)
    took = time.monotonic() - began
    goodput = (int(rig.stats()["ledger.answered"]) - int(before)) / took
    offered = (flood.order("count")["sent"] - offered) / took
    half = len(memory) // 2
    rig.stop_checkers()
    refusals = rig.facts["error_ms"] or {"p50": None, "p99": None}
    rig.facts |= {
        "peak_rps": round(peak),
        "offered_rps": round(offered),
        "goodput_rps": round(goodput),
        "goodput_of_peak": round(goodput / peak, 3),
        "refusal_p50_ms": refusals["p50"],
        "refusal_p99_ms": refusals["p99"],
        "rss_plateau_mib": round(float(np.median(memory[half:])), 1),
        "rss_over_plateau_mib": round(max(memory) - float(np.median(memory[half:])), 1),
    }
    again = _peak(rig)
    rig.facts |= {"after_rps": round(again), "after_of_peak": round(again / peak, 3)}
    rig.finish()


def _peak(rig: Rig) -> float:
    """Return what the server answers a second with 128 requests under way, over a quarter of the run's time."""
    seconds = max(1.0, rig.setting.seconds / 4)
    loaders = [rig.add_checker(supply=Supply("ticks"), outstanding=128, packed=PACKED), rig.add_checker(supply=Supply("ticks"))]
    time.sleep(0.5)
    before, began = _answered(loaders), time.monotonic()
    time.sleep(seconds)
    rate = (_answered(loaders) - before) / (time.monotonic() - began)
    rig.stop_checkers()
    return rate


def _answered(loaders: list[Helper]) -> int:
    return sum(int(loader.order("count")["ok"]) for loader in loaders)


def soak(rig: Rig) -> None:
    """Mixed models and sizes in one server, one kill a minute; memory, descriptors and threads of broker and supervisor stay."""
    rig.start(config=lanes.mixed(rig.setting.cut), supply=Supply("mixed"))
    watched = {"broker": rig.server.children()["broker"][0], "supervisor": rig.server.pid}
    samples: dict[str, list[tuple[float, float, int, int]]] = {name: [] for name in watched}
    next_kill = time.monotonic() + min(KILL_EVERY_S, rig.setting.seconds / 3)
    while rig.goes_on:
        now = time.monotonic()
        for name, pid in watched.items():
            samples[name].append((now, rss_mib(pid), *threads_and_descriptors(pid)))
        if now >= next_kill and (victim := rig.victim()) is not None:
            next_kill = now + min(KILL_EVERY_S, rig.setting.seconds / 3)
            rig.strike(*victim)
        rig.pause(SOAK_SAMPLE_S)
    rig.facts["growth"] = {name: _growth(found) for name, found in samples.items()}
    rig.finish()


def _growth(samples: list[tuple[float, float, int, int]]) -> dict[str, Any]:
    """Return slope and range of one process after the first fifth of the run, which is its warm-up."""
    rows = np.array(samples[len(samples) // 5 :])
    slope = float(np.polyfit(rows[:, 0], rows[:, 1], 1)[0]) * 600 if len(rows) > 2 else 0.0
    return {
        "rss_mib": round(float(np.median(rows[:, 1])), 1),
        "rss_mib_per_10_min": round(slope, 2),
        "threads": [int(rows[:, 2].min()), int(rows[:, 2].max())],
        "descriptors": [int(rows[:, 3].min()), int(rows[:, 3].max())],
    }
