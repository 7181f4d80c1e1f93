"""What a worker tells about its device: one line in the log, two words on the board, sums in the statistics."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from builders import make_bench

from broker.answers import Answers
from schemas.config import ServerConfig
from schemas.logs import configure
from schemas.plan import MAX_COLUMNS, DevicePlan, LanePlan
from schemas.words import COLUMN_WORDS
from stages.device_event import say_selected, show_bytes
from stages.device_host import HostDevice


class Card(HostDevice):
    """A device that has taken memory."""

    kind = "cuda"
    pool_bytes = 1000
    pinned_bytes = 30


def lane(device: DevicePlan) -> LanePlan:
    """Return a lane whose model runs on *device*."""
    return dataclasses.replace(make_bench().lane.plan, device=device)


@pytest.mark.parametrize("level", ["info", "warning"])
def test_the_event_says_where_why_and_with_what(level: str, capfd: pytest.CaptureFixture[str]) -> None:
    """At the level that the decision has: a GPU that is there and not used is a warning."""
    configure("infer.0", "info")
    plan = lane(DevicePlan("cuda", level, "GPU 0: L4", {"name": "L4", "driver": "580.65.06", "cudnn": "9.14.0"}))

    say_selected(plan, Card(), [1, 2, 4])
    told: dict[str, Any] = json.loads(capfd.readouterr().err)
    expected = {"event": "device_selected", "level": level, "lane": plan.name, "device": "cuda", "reason": "GPU 0: L4"}
    expected |= {"name": "L4", "driver": "580.65.06", "cudnn": "9.14.0", "process": "infer.0"}
    sizes = {"batches": [1, 2, 4], "pool_bytes": 1000, "pinned_bytes": 30, "registered_bytes": 0}
    del told["timestamp"]
    assert told == {**expected, **sizes}


def test_statistics_add_up_what_a_lanes_processes_have_on_gpus() -> None:
    """Processes of other lanes do not count."""
    columns = np.zeros((MAX_COLUMNS, COLUMN_WORDS), np.uint64)
    bench = make_bench()
    mine = [number for serving in bench.lane.replicas for number in serving]
    for number in mine:
        show_bytes(columns[number & 0xFF], [Card(), Card()])
    other = next(column for column in range(1, MAX_COLUMNS) if column not in {number & 0xFF for number in mine})
    show_bytes(columns[other], [Card()])

    stats = Answers(bench.core, ServerConfig(), 1, columns).stats()
    name = bench.lane.plan.name
    assert mine
    assert stats[f"lane.{name}.gpu.pool_bytes"] == 2000 * len(mine)
    assert stats[f"lane.{name}.gpu.pinned_bytes"] == 60 * len(mine)
