"""The clients behind a door: who they are by their keys, who is refused, and that one key is one client to the backlog."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from builders import make_request
from curve_files import write_new

from broker.admission import Backlog
from broker.curve import AllowList
from broker.life import Client
from broker.roster import Roster

# Routing ids as ZeroMQ gives them out.
FIRST, SECOND = b"\0\1\2\3\4", b"\0\1\2\3\5"


@dataclass
class Frame:
    """What the first frame of a connection tells: the key that shook hands."""

    key: str

    def get(self, name: str) -> str:
        """Return the property *name*."""
        assert name == "User-Id"
        return self.key


class Door:
    """A roster with the keys of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.keys = {name: write_new(directory, name).public for name in ("cam1", "cam2")}
        self.allowed = AllowList(directory)
        self.roster = Roster(4, self.allowed)

    def enter(self, identity: bytes, name: str) -> Client:
        """Have the first message of a connection with the key of *name* come."""
        frame: Any = Frame(self.keys[name])
        return self.roster.enter(identity, frame)

    def change(self) -> None:
        """Have the broker take note of the changed files."""
        self.allowed.refresh()
        assert self.allowed.refresh()
        self.roster.review()


@pytest.fixture
def door(tmp_path: Path) -> Door:
    """A door that takes cam1 and cam2."""
    return Door(tmp_path)


def test_a_client_is_named_by_its_key(door: Door) -> None:
    """And welcome while the key is listed."""
    client = door.enter(FIRST, "cam1")

    assert (client.name, client.barred) == ("cam1", "")
    assert door.roster.clients == {FIRST: client}


def test_without_keys_each_connection_is_its_own_client() -> None:
    """Nothing is asked of its frames, and any routing id will do."""
    roster = Roster(4)
    frame: Any = None

    clients = [roster.enter(identity, frame) for identity in (FIRST, b"named")]

    assert [(client.fair, client.barred) for client in clients] == [(FIRST, ""), (b"named", "")]


def test_a_key_that_is_taken_off_bars_its_connections(door: Door) -> None:
    """Those of others are not touched; put back, they are welcome again."""
    one, other = door.enter(FIRST, "cam1"), door.enter(SECOND, "cam2")
    (door.directory / "cam1.pub").rename(door.directory / "off")
    door.change()
    assert "not on the server's list" in one.barred
    assert (one.name, other.barred) == ("cam1", "")

    (door.directory / "off").rename(door.directory / "cam1.pub")
    door.change()
    assert one.barred == ""


def test_a_name_with_a_new_key_bars_the_connections_of_the_old_one(door: Door) -> None:
    """It is the key that counts."""
    client = door.enter(FIRST, "cam1")
    write_new(door.directory, "new")
    (door.directory / "new.pub").replace(door.directory / "cam1.pub")
    door.change()

    assert client.barred


def test_a_connection_that_comes_late_is_judged_by_todays_list(door: Door) -> None:
    """Its handshake may be older than the list."""
    (door.directory / "cam1.pub").unlink()
    door.change()

    assert door.enter(FIRST, "cam1").barred


@pytest.mark.parametrize("identity", [b"cam2", b"\0", b"\0\1\2\3\4\5", b"\xff\xfe\xfd\xfc\xfb"])
def test_a_socket_with_a_name_of_its_own_is_refused(door: Door, identity: bytes) -> None:
    """It could be taken for one that had the name before; no list changes that."""
    client = door.enter(identity, "cam1")
    write_new(door.directory, "cam3")
    door.change()

    assert "must not set a routing id" in client.barred


def test_a_full_table_forgets_the_idle(door: Door) -> None:
    """Not those with something in flight; a refused one that comes again is refused again."""
    busy = door.enter(FIRST, "cam1")
    busy.in_flight[1] = make_request(busy, 1, None)
    (door.directory / "cam2.pub").unlink()
    door.change()
    for number in range(10):
        assert door.enter(bytes([0, 0, 0, 0, number]), "cam2").barred

    assert door.roster.clients[FIRST] is busy
    assert len(door.roster.clients) <= 4


def test_a_client_that_is_gone_is_forgotten(door: Door) -> None:
    """And forgetting it twice does no harm."""
    client = door.enter(FIRST, "cam1")
    door.roster.forget(client)
    door.roster.forget(client)

    assert door.roster.clients == {}


def test_connections_of_one_key_share_one_turn(door: Door) -> None:
    """Many connections buy a client no more than one does; without keys each has its own turn."""
    backlog = Backlog(max_requests=1000, max_bytes=1 << 30, quantum_rows=1)
    many = [door.enter(bytes([0, 0, 0, 0, number]), "cam1") for number in range(3)]
    single = door.enter(SECOND, "cam2")
    ticket = count(1)
    for number in range(30):
        for client in (*many, single):
            backlog.push(make_request(client, number, None, ticket=next(ticket)))

    served = [backlog.pop() for _ in range(20)]

    assert sum(request is not None and request.client is single for request in served) == 10


def test_the_list_of_a_copied_directory_is_the_same(door: Door, tmp_path: Path) -> None:
    """Keys are known by what is in the files, not by where these are."""
    copy = tmp_path / "copy"
    shutil.copytree(door.directory, copy, ignore=shutil.ignore_patterns("copy"))

    assert AllowList(copy).names == door.allowed.names
