"""The lease socket with real processes on the other side: who gets a region, and when it may be lent again."""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from lease_rig import FORM, close, make_pool, make_regions

from broker.lease_door import MAX_WITHOUT_LEASE, LeaseDoor
from broker.leases import LeasePool
from broker.life import Client
from broker.roster import Roster
from schemas.lease_regions import LeaseRegions
from schemas.leases import Answer, Ask, LeaseOp, read_answer, write_ask
from schemas.status import Code


@dataclass
class Rig:
    """A door, and what lies behind it."""

    door: LeaseDoor
    pool: LeasePool
    regions: LeaseRegions
    client: Client

    def connect(self) -> socket.socket:
        """Come to the door."""
        guest = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        guest.settimeout(10)
        guest.connect(self.door.path)
        return guest

    def turn(self) -> None:
        """Let the door do what there is."""
        while select.select([self.door.fileno()], [], [], 0)[0]:
            self.door.turn()

    def ask(self, guest: socket.socket, token: str, **wish: int) -> tuple[Answer, list[int]]:
        """Ask for a lease; return the answer and the descriptors with it."""
        guest.send(write_ask(Ask(LeaseOp.LEASE, token, **wish)))
        self.turn()
        packet, descriptors, _, _ = socket.recv_fds(guest, 1000, 4)
        answer = read_answer(packet)
        assert answer is not None
        return answer, descriptors

    def clean(self) -> int:
        """Clean what came back, and return in how many turns."""
        turns = 0
        while self.pool.dirty is not None:
            self.door.clean()
            turns += 1
        return turns


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A door with one region."""
    regions, descriptors = make_regions(1)
    pool = make_pool(1)
    door = LeaseDoor(pool, descriptors, regions, str(tmp_path / "leases"))
    yield Rig(door, pool, regions, Client(b"client"))
    door.close()
    close(descriptors)


def test_a_token_gets_the_region_of_its_client(rig: Rig) -> None:
    """What is written into the mapping is what the server sees; a frame's size and place are told."""
    with rig.connect() as guest:
        answer, (descriptor,) = rig.ask(guest, rig.door.token_of(rig.client), frame_bytes=5000, frames=3)
        assert answer[:6] == (Code.NONE, 0, 101, 3, 5000, 8192)
        with mmap.mmap(descriptor, FORM.region_bytes) as mapping:
            mapping[8192:8195] = b"abc"
        os.close(descriptor)

        assert rig.regions.region(0)[8192:8195].tobytes() == b"abc"
        assert [grant.generation for grant in rig.pool.of_client(rig.client)] == [101]


def test_the_socket_is_for_its_user_alone(rig: Rig) -> None:
    """Its file has no rights for others."""
    assert os.stat(rig.door.path).st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("wish", "code"), [({"frame_bytes": 5001}, Code.TOO_LARGE), ({"frames": 4}, Code.TOO_LARGE), ({}, Code.UNAUTHORIZED)]
)
def test_who_gets_none_is_told_why_and_let_go(rig: Rig, wish: dict[str, int], code: Code) -> None:
    """More than there is, or a token that nobody was given; then the connection ends."""
    token = rig.door.token_of(rig.client) if wish else "f" * 32
    with rig.connect() as guest:
        answer, descriptors = rig.ask(guest, token, **wish)

        assert (answer.code, descriptors) == (code, [])
        assert guest.recv(10) == b""


def test_a_token_of_a_connection_that_is_gone_is_none(rig: Rig) -> None:
    """Its leases end too."""
    token = rig.door.token_of(rig.client)
    with rig.connect() as guest, rig.connect() as late:
        _, (descriptor,) = rig.ask(guest, token)
        os.close(descriptor)
        rig.client.gone = True
        rig.door.client_gone(rig.client)

        assert rig.pool.of_client(rig.client)[0].is_ended
        assert rig.ask(late, token)[0].code == Code.UNAUTHORIZED


def test_a_connection_has_one_token(rig: Rig) -> None:
    """However often it says Hello, so that nobody fills the broker's memory with them."""
    assert len({rig.door.token_of(rig.client) for _ in range(10)}) == 1


def test_tokens_of_records_that_were_forgotten_do_not_pile_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that ended in silence are never heard to be gone; whoever there is a record of keeps its token."""
    monkeypatch.setattr("broker.lease_door.MAX_TOKENS", 8)
    rig.door.meet(roster := Roster(4))
    stays = roster.clients[b"client"] = rig.client
    token = rig.door.token_of(stays)
    forgotten = [rig.door.token_of(Client(b"%d" % number)) for number in range(50)]

    with rig.connect() as first, rig.connect() as second:
        assert rig.ask(first, forgotten[0])[0].code == Code.UNAUTHORIZED
        answer, (descriptor,) = rig.ask(second, token)
        os.close(descriptor)
    assert answer.code == Code.NONE


@pytest.mark.parametrize("came_back", [False, True])
def test_a_lease_is_bound_to_the_record_that_requests_have_now(rig: Rig, came_back: bool) -> None:
    """The table of clients forgets idle ones; a lease bound to a forgotten record would be of no use to anybody."""
    rig.door.meet(roster := Roster(4))
    token = rig.door.token_of(rig.client)
    if came_back:
        roster.clients[b"client"] = Client(b"client")
    with rig.connect() as guest:
        _, (descriptor,) = rig.ask(guest, token)
        os.close(descriptor)

        assert len(rig.pool.of_client(roster.clients[b"client"])) == 1


def test_a_connection_whose_key_was_taken_off_gets_none(rig: Rig) -> None:
    """Like everything else that it asks for."""
    token = rig.door.token_of(rig.client)
    rig.client.barred = "not listed"
    with rig.connect() as guest:
        assert rig.ask(guest, token)[0].code == Code.UNAUTHORIZED


def test_a_goodbye_gives_the_region_back_clean(rig: Rig) -> None:
    """Zeroed before anybody else gets it."""
    with rig.connect() as guest:
        _, (descriptor,) = rig.ask(guest, rig.door.token_of(rig.client))
        os.close(descriptor)
        rig.regions.region(0)[:] = 7
        guest.send(write_ask(Ask(LeaseOp.GOODBYE)))
        rig.turn()
    assert rig.pool.lend(rig.client) is None
    assert rig.clean() == 1

    assert not rig.regions.region(0).any()
    assert rig.pool.lend(rig.client) is not None


def test_a_region_waits_for_a_living_client(rig: Rig) -> None:
    """Its connection has ended without a goodbye: it could still write, so the region is lent again when it is dead."""
    token = rig.door.token_of(rig.client)
    ready, say_ready = os.pipe()
    go, say_go = os.pipe()
    child = os.fork()
    if child == 0:
        guest = rig.connect()
        guest.send(write_ask(Ask(LeaseOp.LEASE, token)))
        os.write(say_ready, b"x")
        guest.recv(1000)
        guest.close()
        os.write(say_ready, b"x")
        os.read(go, 1)
        os._exit(0)
    os.read(ready, 1)
    rig.turn()
    os.read(ready, 1)
    rig.turn()
    (grant,) = rig.pool.of_client(rig.client)
    assert (grant.is_ended, grant.is_left, rig.pool.dirty) == (True, False, None)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    rig.turn()

    assert rig.pool.dirty == 0
    for descriptor in (ready, say_ready, go, say_go):
        os.close(descriptor)


def test_garbage_ends_a_connection(rig: Rig) -> None:
    """Of one without a lease, and of one that has one: that ends too."""
    with rig.connect() as rude, rig.connect() as guest:
        rude.send(b"GET / HTTP/1.1")
        _, (descriptor,) = rig.ask(guest, rig.door.token_of(rig.client))
        os.close(descriptor)
        guest.send(b"more")
        rig.turn()

        assert rude.recv(10) == b""
        assert rig.pool.of_client(rig.client)[0].is_ended


def test_silent_connections_are_bounded(rig: Rig) -> None:
    """The one that waited longest goes first; whoever asks is served."""
    silent = []
    for _ in range(MAX_WITHOUT_LEASE + 5):
        silent.append(rig.connect())
        rig.turn()

    assert silent[0].recv(10) == b""
    with rig.connect() as guest:
        answer, (descriptor,) = rig.ask(guest, rig.door.token_of(rig.client))
        os.close(descriptor)
    assert answer.code == Code.NONE
    for one in silent:
        one.close()
