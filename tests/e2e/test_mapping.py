"""Tensors do not travel between stages: what a stage left in its slot is what the next one reads there, in place."""

from __future__ import annotations

from pathlib import Path

import configs
import numpy as np
from mapping import map_lane
from places import StartServer
from raw_client import RawClient, bytes_template
from server import wait_until

SIZE = 50_000


def test_bytes_changed_between_two_stages_arrive(make_server: StartServer, place: Path) -> None:
    """The first process holds the slot after its write; whoever maps the memory changes bytes there; the answer has them.

    So the second process, and the broker behind it, read the slot itself and no copy made before.
    """
    payload = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
    server = make_server(configs.waiting(str(place))).start()
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


def test_the_input_lies_in_the_slot_once(make_server: StartServer, place: Path) -> None:
    """The broker's one copy on the way in: the payload is found in the input region, byte for byte."""
    server = make_server(configs.waiting(str(place))).start()
    arena = map_lane(server, "pair")
    payload = np.random.default_rng(2).integers(0, 256, SIZE, np.uint8).tobytes()
    client = RawClient(server.endpoint)
    client.send(bytes_template("pair", SIZE), [payload], {"answer": payload})
    wait_until((place / "written").exists, "the first stage's write")

    rows = arena.regions[arena.plan.links[0].region]
    assert [bytes(row[:SIZE]) == payload for row in rows].count(True) == 1
    (place / "leave").touch()

    client.finish()
    client.assert_all_right(1)
    client.close()
    assert server.stop() == 0
