"""A running server's shared memory, mapped to read what a process had in hand when it died."""

from __future__ import annotations

import os
from pathlib import Path

from bench.chaos.place import ChaosServer, memory_of
from schemas.arena import Board, LaneArena
from schemas.plan import load_plan
from schemas.status import ConfigError
from schemas.words import INCARNATION, RUN_STARTED_NS, VISIBLE, column_of


class ServerMemory:
    """The memory of one epoch, as its broker has it."""

    def __init__(self, server: ChaosServer) -> None:
        pid = server.children()["broker"][0]
        plans = list(server.place.glob("slotline-*/plan.json"))
        if len(plans) != 1:
            raise ConfigError(f"expected one server in {server.place}, found {len(plans)}")
        found = memory_of(pid)
        self._board = Board(_opened(pid, found["board"]))
        self._arenas = [LaneArena(_opened(pid, found[lane.name]), lane) for lane in load_plan(plans[0]).lanes]

    def in_hand(self, incarnation: int) -> int:
        """Return how many slots a process holds. After its death, and until its column is used again, what it held then."""
        return sum(int(arena.held[column_of(incarnation)].sum()) for arena in self._arenas)

    def is_ready(self, incarnation: int) -> bool:
        """Return whether a process is on the board, so that others send to it."""
        words = self._board.columns[column_of(incarnation)]
        return bool(words[VISIBLE]) and int(words[INCARNATION]) == incarnation

    def in_call(self, incarnation: int) -> bool:
        """Return whether it is (at its death: was) inside a call into stage code."""
        return bool(self._board.columns[column_of(incarnation), RUN_STARTED_NS])


def _opened(pid: int, descriptor: int) -> int:
    """Return a descriptor of ours for the shared memory *descriptor* of process *pid*; the run is short, and it stays open."""
    return os.open(Path(f"/proc/{pid}/fd/{descriptor}"), os.O_RDWR)
