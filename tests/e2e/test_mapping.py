"""Tensors do not travel between stages: what a stage left in its slot is what the next one reads there, in place."""

from __future__ import annotations

import os

import configs
import numpy as np
from places import StartServer
from raw_client import RawClient, bytes_template
from server import Server, memory_of, wait_until

from schemas.arena import LaneArena
from schemas.plan import load_plan

SIZE = 50_000


def map_lane(server: Server, lane: str) -> LaneArena:
    """Map a lane's memory as a stage does, through the descriptor of one of the server's processes."""
    (plan_file,) = server.place.glob("slotline-*/plan.json")
    plan = next(p for p in load_plan(plan_file).lanes if p.name == lane)
    pid = server.child(f"{lane}.decode.0")
    descriptor = os.open(f"/proc/{pid}/fd/{memory_of(pid)[lane]}", os.O_RDWR)
    try:
        return LaneArena(descriptor, plan)
    finally:
        os.close(descriptor)


def test_bytes_changed_between_two_stages_arrive(make_server: StartServer) -> None:
    """The first process holds the slot after its write; whoever maps the memory changes bytes there; the answer has them.

    So the second process, and the broker behind it, read the slot itself and no copy made before.
    """
    payload = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
    place = None
    server = make_server(configs.waiting("PLACE"))
    place = server.place
    server.config = configs.waiting(str(place))
    server.start()
    arena = map_lane(server, "pair")
    link = next(link for link in arena.plan.links if link.name == "pixels")
    changed = payload.copy()
    changed[[0, 77, SIZE // 2, SIZE - 1]] ^= 0xFF
    client = RawClient(server.endpoint)
    client.send(bytes_template("pair", SIZE), [payload.tobytes()], {"answer": changed.tobytes()})
    wait_until((place / "written").exists, "the first stage's write")

    rows = arena.regions[link.region]
    (slot,) = [slot for slot in range(arena.plan.slots) if bytes(rows[slot, :SIZE]) == payload.tobytes()]
    rows[slot, :SIZE] = changed
    (place / "leave").touch()

    client.finish()
    client.assert_all_right(1)
    client.close()
    assert server.stop() == 0
    assert arena.regions[link.region][slot, 0] == changed[0], "our mapping outlives the server and nothing else does"


def test_the_input_lies_in_the_slot_once(make_server: StartServer) -> None:
    """The broker's one copy on the way in: the payload is found in the input region, byte for byte."""
    server = make_server(configs.waiting("PLACE"))
    server.config = configs.waiting(str(server.place))
    server.start()
    arena = map_lane(server, "pair")
    payload = np.random.default_rng(2).integers(0, 256, SIZE, np.uint8).tobytes()
    client = RawClient(server.endpoint)
    client.send(bytes_template("pair", SIZE), [payload], {"answer": payload})
    wait_until((server.place / "written").exists, "the first stage's write")

    rows = arena.regions[arena.plan.links[0].region]
    assert [bytes(row[:SIZE]) == payload for row in rows].count(True) == 1
    (server.place / "leave").touch()

    client.finish()
    client.assert_all_right(1)
    client.close()
    assert server.stop() == 0
