"""Stages that cannot start any more while the server serves: closed and tried again, unless another replica serves them."""

from __future__ import annotations

import os
import signal
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from places import StartServer
from raw_client import statistics
from server import Server, wait_until

from clients import Busy, Client
from schemas.status import Code

# Five starts that fail, with the waits between them, on a busy machine; and one try every half minute.
PATIENCE_S = 180.0
RETRY_S = 30.0
LANE = """
[lane.{name}]
slots = 4
max_encoded_bytes = 4096
default_budget_us = 50_000_000
replicas = {{ decode = {replicas} }}
[lane.{name}.decode]
use = "stages_for_tests:misbehave"
die_in = "{place}"
outputs = [{{ name = "echo", dtype = "UINT8", shape = [-1], max_shape = [4096] }}]
"""
BODY = {"payload": np.zeros(8, np.uint8)}


def loops(server: Server) -> set[str]:
    """Return the names of the processes of which a crash loop was told."""
    return {event["child"] for event in server.events("crash_loop")}


def seconds_to_next_start(server: Server, name: str) -> float:
    """Return how long after its first crash loop *name* was started again."""
    at = datetime.fromisoformat(next(e["timestamp"] for e in server.events("crash_loop") if e["child"] == name))
    starts = [datetime.fromisoformat(e["timestamp"]) for e in server.events("started") if e["child"] == name]
    return (min(start for start in starts if start > at) - at).total_seconds()


def test_a_crash_loop_closes_a_lane_only_when_nobody_else_serves_it(make_server: StartServer, place: Path) -> None:
    """What waits and what comes is refused with the reason; the twin's lane is served on. Half a minute later both are whole."""
    server = make_server(LANE.format(name="twin", replicas=2, place=place) + LANE.format(name="single", replicas=1, place=place))
    server.start()
    # It serves once each lane has one.
    wait_until(lambda: statistics(server.control)["lane.twin.replicas"] == "2", "both twins", timeout_s=PATIENCE_S)
    (place / "broken").touch()
    for name in ("twin.0", "single.0"):
        os.kill(server.child(name), signal.SIGKILL)
    with Client(server.endpoint, timeout_s=PATIENCE_S) as client:
        wait_until(lambda: client.health().state == "degraded", "the loss of a lane", timeout_s=PATIENCE_S)
        waiting = client.submit("single", BODY)
        while loops(server) != {"twin.0", "single.0"}:
            assert client.infer("twin", BODY)["echo"].tolist() == [0] * 8

        with pytest.raises(Busy, match=r"process single\.0 died five times, last by exit code 3") as refused:
            waiting.result()
        assert refused.value.code == Code.MODEL_UNAVAILABLE
        with pytest.raises(Busy):
            client.infer("single", BODY)
        assert (client.ready("single"), client.ready("twin"), client.ready()) == (False, True, False)
        assert client.infer("twin", BODY)["echo"].tolist() == [0] * 8

        (place / "broken").unlink()
        wait_until(lambda: statistics(server.control)["lane.twin.replicas"] == "2", "the twin", timeout_s=PATIENCE_S)
        wait_until(client.ready, "all lanes", timeout_s=PATIENCE_S)
        assert client.infer("single", BODY)["echo"].tolist() == [0] * 8
    for name in ("twin.0", "single.0"):
        assert seconds_to_next_start(server, name) >= RETRY_S - 1
    assert server.stop() == 0
