"""A running server's shared memory, mapped by the test as its processes map it: through the descriptor of one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from server import Server, memory_of

from schemas.arena import Board, LaneArena
from schemas.plan import load_plan


def map_lane(server: Server, lane: str) -> LaneArena:
    """Return a lane's memory, writable."""
    (plan_file,) = server.place.glob("slotline-*/plan.json")
    plan = next(p for p in load_plan(plan_file).lanes if p.name == lane)
    with _descriptor(server, lane) as descriptor:
        return LaneArena(descriptor, plan)


def map_board(server: Server) -> Board:
    """Return the columns of all processes."""
    with _descriptor(server, "board") as descriptor:
        return Board(descriptor)


@contextmanager
def _descriptor(server: Server, name: str) -> Iterator[int]:
    """Open the broker's memory *name* for as long as the mapping takes; the mapping stays."""
    pid = server.child("broker")
    descriptor = os.open(f"/proc/{pid}/fd/{memory_of(pid)[name]}", os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
