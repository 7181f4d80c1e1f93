"""Which lanes are open while processes come and go; real words, a real socket pair to the supervisor, no ZeroMQ."""

from __future__ import annotations

import os
import socket
from typing import Any, cast

import pytest
from builders import make_arena, no_barrier

from broker.channel import Channel
from broker.core import Core
from broker.crew import Crew
from broker.endings import Ended
from broker.incarnations import Incarnations
from broker.lanes import Lane
from broker.metrics import Ledger
from schemas.arena import Board
from schemas.config import parse_config
from schemas.plan import Plan
from schemas.words import BOARD_BYTES
from stages.lane_plan import build_plan

TWO_PROCESSES = """
[lane.a]
processes = [["decode", "preprocess"], ["postprocess"]]
replicas = { decode = 2 }
"""


class Answers:
    """What the crew needs of the results: nothing lies in the sink, and what ends is noted."""

    def __init__(self) -> None:
        self.ended: list[Ended] = []

    def drain_all(self) -> None:
        """Find nothing."""

    def answer(self, ended: Ended) -> None:
        """Note it."""
        self.ended.append(ended)


class Ways:
    """What the crew needs of the dispatcher: to be told who is there."""

    has_descriptors = True

    def connect(self, process: int, incarnation: int) -> bool:
        """Open nothing."""
        return self.has_descriptors

    def disconnect(self, incarnation: int) -> None:
        """Close nothing."""


class Rig:
    """A crew with one lane in two processes, and the supervisor's end of its line."""

    def __init__(self, tmp_path: Any) -> None:
        plan: Plan = build_plan(parse_config(TWO_PROCESSES, base=tmp_path, source="test"), {})
        arena = make_arena(plan.lanes[0])
        self.lane = Lane(plan.lanes[0], arena, no_barrier)
        board = os.memfd_create("board")
        os.ftruncate(board, BOARD_BYTES)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.supervisor = Channel(ours.detach())
        self.core = Core([self.lane], Ledger(), max_in_flight=10)
        self.ways = Ways()
        self.crew = Crew(
            self.core,
            Incarnations(Board(board), [arena]),
            cast(Any, self.ways),
            Channel(theirs.detach()),
            results=cast(Any, Answers()),
            endpoint="ipc:///x",
        )

    def start(self, process: int, replica: int = 0) -> int:
        """Have a process started and ready; return its incarnation."""
        self.crew.obey({"event": "prepare", "process": process, "replica": replica})
        (event,) = [e for e in self.supervisor.receive() or () if e["event"] == "start"]
        self.crew.ready(event["incarnation"])
        number: int = event["incarnation"]
        return number

    def die(self, number: int) -> None:
        """Tell the crew of a reap."""
        self.crew.obey({"event": "reaped", "incarnation": number})

    def crash_loop(self, process: int) -> None:
        """Tell the crew that a replica of *process* cannot start."""
        self.crew.obey({"event": "unavailable", "process": process, "reason": f"process {process} died five times"})


@pytest.fixture
def rig(tmp_path: Any) -> Rig:
    """Nothing is started yet."""
    return Rig(tmp_path)


def test_a_lane_is_ready_when_each_of_its_processes_has_a_replica(rig: Rig) -> None:
    """Then, and once, the supervisor is told."""
    rig.start(0)
    assert not rig.lane.is_ready

    rig.start(1)

    assert rig.lane.is_ready
    assert [e["event"] for e in rig.supervisor.receive() or ()] == ["up", "serving"]


def test_a_replica_that_cannot_start_does_not_close_a_lane_that_another_serves(rig: Rig) -> None:
    """The lane stays open with what it has."""
    rig.start(0, 0)
    rig.start(1)

    rig.crash_loop(0)

    assert rig.lane.is_ready


def test_a_process_that_cannot_start_closes_its_lane_with_the_reason(rig: Rig) -> None:
    """No replica is left."""
    rig.start(1)

    rig.crash_loop(0)

    assert rig.lane.unavailable == "process 0 died five times"


def test_another_process_that_comes_up_does_not_open_a_closed_lane(rig: Rig) -> None:
    """Only the one that was missing does."""
    other = rig.start(1)
    rig.crash_loop(0)
    rig.die(other)

    rig.start(1)
    assert rig.lane.unavailable == "process 0 died five times"

    rig.start(0)
    assert rig.lane.is_ready


def test_a_reaped_replica_is_no_longer_chosen(rig: Rig) -> None:
    """The lane waits for the next one."""
    first = rig.start(0)
    rig.start(1)

    rig.die(first)

    assert rig.lane.replicas == [[], rig.lane.replicas[1]]
    assert first not in rig.core.live


def test_a_process_for_which_there_is_no_descriptor_is_reached_when_there_is_one(rig: Rig) -> None:
    """Until then nobody sends to it, and nothing ends because of it."""
    rig.start(1)
    rig.ways.has_descriptors = False
    rig.start(0)
    rig.crew.report_hanging(0)
    assert not rig.lane.is_ready

    rig.ways.has_descriptors = True
    rig.crew.report_hanging(0)

    assert rig.lane.is_ready


def test_a_process_that_dies_out_of_reach_is_forgotten(rig: Rig) -> None:
    """Its successor has another number."""
    rig.ways.has_descriptors = False
    rig.die(rig.start(0))
    rig.ways.has_descriptors = True

    rig.crew.report_hanging(0)

    assert rig.lane.replicas[0] == []
