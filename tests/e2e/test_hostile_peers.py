"""Hostile peers of a real server: damaged messages, raw TCP, floods of connections. A good client is served all the while.

``SLOTLINE_MUTANTS=20000 pytest tests/e2e/test_hostile_peers.py`` sends more damaged messages than every run does; the full number
goes through the broker's door in one process, see ``tests/wire/test_mutants.py``.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from attacker import ALLOWED, PART, send_mutants
from door import read_reply
from hostile_requests import CONTENTS, KINDS, MODELS, TENSORS
from hostile_server import MAX_CLIENTS, MIB, HostileServer, config, small_config, under_attack
from hostile_structure import FRAMES, GOOD, STRUCTURE
from load import DigestLoad
from mutants import Mutator
from raw_client import PATIENCE_S, RawClient, bytes_template, statistics
from raw_peer import COMMAND, GREETING, LONG, MORE, RawPeer, frame
from server import left_behind, wait_until

from schemas.messages import Hello, write_message

MUTANTS = int(os.environ.get("SLOTLINE_MUTANTS", "5000"))
GROWTH_BYTES = 32 * MIB
CONNECTIONS = 1000


@pytest.fixture(scope="module")
def server() -> Iterator[HostileServer]:
    """One server on a TCP port for all that is done here; at the end it leaves nothing behind."""
    place = Path(tempfile.mkdtemp(prefix="slt-"))
    running = HostileServer(place, config("heartbeat_ms = 100\nheartbeat_timeout_ms = 1000"))
    try:
        yield running.start()
        running.assert_unharmed()
        assert running.stop() == 0
        wait_until(lambda: not left_behind(place), "the end")
    finally:
        print(running.errors()[-4000:])
        running.kill()
        shutil.rmtree(place, ignore_errors=True)


# --- damaged messages --------------------------------------------------------------------------------------------------------


def test_damaged_messages_are_answered_and_others_are_served(server: HostileServer) -> None:
    """At least 99 in 100 of those whose Route can be read get an answer by their id; the broker does not grow."""
    mutator = Mutator(seed=2)
    readable, answered, codes, grown_from = 0, 0, Counter[int](), 0

    def attack(good: DigestLoad) -> None:
        nonlocal readable, answered, grown_from
        for _ in range(0, MUTANTS, PART):
            found = send_mutants(server, mutator, good)
            readable, answered = readable + found[0], answered + found[1]
            codes.update(found[2])
            # The first part fills caches that are bounded.
            grown_from = grown_from or server.resident_bytes()

    under_attack(server, attack, seed=1)
    grown = server.resident_bytes() - grown_from
    print(f"{MUTANTS} messages: {readable} headers with a Route, {answered / readable:.3%} answered; {dict(codes)}")
    print(f"grown by {grown / MIB:.1f} MiB")
    assert answered / readable >= 0.99
    assert set(codes) <= ALLOWED
    assert grown < GROWTH_BYTES


def test_every_hostile_case_gets_its_code_over_the_network(server: HostileServer) -> None:
    """And a picture that is none is refused by the stage that decodes."""
    cases = FRAMES | STRUCTURE | KINDS | TENSORS | MODELS | CONTENTS
    wrong: dict[str, object] = {}

    def attack(good: DigestLoad) -> None:
        attacker = RawClient(server.endpoint)
        for name, one in cases.items():
            attacker.socket.send_multipart(one.frames)
            assert attacker.socket.poll(int(PATIENCE_S * 1000)), name
            header, *rest = attacker.socket.recv_multipart()
            # Once a connection has sent a delimiter, it gets one.
            reply = read_reply(*((header, rest) if header else (rest[0], rest[1:])))
            if (reply.request_id, reply.code, reply.field) != (one.request_id, one.code, one.field):
                wrong[name] = reply
        attacker.close()

    under_attack(server, attack, seed=2)
    assert wrong == {}


# --- peers that speak no ZeroMQ ----------------------------------------------------------------------------------------------

# Without a ZMTP greeting libzmq takes a peer for one of its oldest protocol, whose messages are any bytes behind a length.
OLD = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20,
    "random bytes": random.Random(5).randbytes(4096),
    "a message of the oldest protocol": b"\x01\x00" + b"\xff" + (len(GOOD) + 1).to_bytes(8, "big") + b"\0" + GOOD,
}
JUNK = {
    "zeros": bytes(4096),
    "a greeting and random bytes": GREETING + random.Random(6).randbytes(4096),
    "a greeting and a message": GREETING + frame(GOOD),
    "a command of 2^62 bytes": GREETING + bytes([COMMAND | LONG]) + (1 << 62).to_bytes(8, "big") + bytes(1000),
}
SILENT = {"silence": b"", "half a greeting": GREETING[:20], "a greeting and silence": GREETING}


@pytest.mark.parametrize("name", JUNK)
def test_who_speaks_no_zeromq_is_cut_off(server: HostileServer, name: str) -> None:
    """And harms nobody."""

    def attack(good: DigestLoad) -> None:
        with RawPeer(server.endpoint) as peer:
            peer.send(JUNK[name])
            good.run_for(0.1)
            assert peer.is_cut()

    under_attack(server, attack, seed=3)


@pytest.mark.parametrize("name", OLD)
def test_who_speaks_another_protocol_harms_nobody(server: HostileServer, name: str) -> None:
    """What it sends is refused like any other bytes, or answered if it happens to be a request."""

    def attack(good: DigestLoad) -> None:
        with RawPeer(server.endpoint) as peer:
            peer.send(OLD[name])
            good.run_for(0.3)

    under_attack(server, attack, seed=12)


def test_who_does_not_finish_its_handshake_is_cut_off(server: HostileServer) -> None:
    """Half-open connections and silent ones, a hundred of each at once."""
    before = server.descriptors()

    def attack(good: DigestLoad) -> None:
        peers = [(RawPeer(server.endpoint), raw) for raw in SILENT.values() for _ in range(100)]
        for peer, raw in peers:
            peer.send(raw)
        good.run_for(0.2)
        for peer, _ in peers:
            assert peer.is_cut()
            peer.socket.close()

    under_attack(server, attack, seed=4)
    wait_until(lambda: server.descriptors() <= before + 2, "the descriptors")


def test_who_writes_a_byte_at_a_time_is_cut_off_while_others_are_served(server: HostileServer) -> None:
    """A greeting that takes longer than the handshake may."""

    def attack(good: DigestLoad) -> None:
        with RawPeer(server.endpoint) as peer:
            sent = 0
            while peer.send(GREETING[sent % 64 : sent % 64 + 1]) and sent < 600:
                sent += 1
                good.run_for(0.05)
            assert 0 < sent < 64

    under_attack(server, attack, seed=5)


def test_a_slow_message_keeps_nobody_waiting(server: HostileServer) -> None:
    """Byte by byte after a good handshake; it is answered when it is complete."""

    def attack(good: DigestLoad) -> None:
        with RawPeer(server.endpoint).shake_hands() as peer:
            whole = frame(GOOD)
            for at in range(0, len(whole), 16):
                assert peer.send(whole[at : at + 16])
                good.run_for(0.02)
            header_bytes = peer.read(64)
            assert header_bytes

    under_attack(server, attack, seed=6)


def test_who_answers_no_heartbeat_is_cut_off(server: HostileServer) -> None:
    """A peer that vanished after its handshake, as when its cable was pulled."""

    def attack(good: DigestLoad) -> None:
        with RawPeer(server.endpoint).shake_hands() as peer:
            good.run_for(0.1)
            assert peer.is_cut()

    under_attack(server, attack, seed=7)


@pytest.mark.parametrize("size", [(1 << 20) + 1, 1 << 40, (1 << 63) - 1])
def test_a_frame_that_is_too_large_ends_its_connection(server: HostileServer, size: int) -> None:
    """By its announced size, before a byte of it is kept."""

    def attack(good: DigestLoad) -> None:
        with RawPeer(server.endpoint).shake_hands() as peer:
            peer.send(bytes([LONG]) + size.to_bytes(8, "big") + bytes(10_000))
            good.run_for(0.1)
            assert peer.is_cut()

    under_attack(server, attack, seed=8)


def test_a_message_of_a_million_frames_is_refused_and_others_are_served(server: HostileServer) -> None:
    """It is read in many turns, and what it took is given back."""

    def refused(peer: RawPeer) -> int:
        # So that it is not cut off meanwhile.
        peer.send(frame(b"\x04PONG", COMMAND))
        return int(statistics(server.control).get("ledger.codes.BAD_FRAMES", 0))

    def attack(good: DigestLoad) -> None:
        with RawPeer(server.endpoint).shake_hands() as peer:
            before = refused(peer)
            peer.send(frame(GOOD, MORE))
            for _ in range(100):
                assert peer.send(frame(b"", MORE) * 10_000)
                good.client.receive()
            assert peer.send(frame(b""))
            good.run_until(lambda: refused(peer) == before + 1)

    under_attack(server, attack, seed=9)


@pytest.mark.parametrize(("size", "is_fatal"), [(100_000, False), (20, True)])
def test_an_endless_message_ends_at_the_memory_limit(place: Path, size: int, is_fatal: bool) -> None:
    """Of large frames one is not taken, and that ends its connection. Of small ones the broker dies, and is started again."""
    attacked = HostileServer(place, small_config("memory_limit_mb = 48"))
    try:
        attacked.start()
        with RawPeer(attacked.endpoint).shake_hands() as peer:
            part, sent = frame(bytes(size), MORE) * (1_000_000 // size), 0
            while peer.send(part):
                sent += len(part)
                assert sent < 1000 * MIB
        if is_fatal:
            wait_until(lambda: attacked.events("broker_died"), "the broker's end")
            wait_until(lambda: statistics(attacked.control)["state"] == "serving", "its successor")
        assert bool(attacked.events("broker_died")) == is_fatal
        check_served(attacked)
        assert attacked.stop() == 0
    finally:
        print(attacked.errors()[-4000:])
        attacked.end()


def check_served(server: HostileServer) -> None:
    """Fail unless a client that comes now is served."""
    load = DigestLoad(server.endpoint, seed=10)
    load.run_for(0.2)
    load.finish()
    load.close()


# --- connections ---------------------------------------------------------------------------------------------------------------


def test_a_thousand_short_lives_leave_nothing(server: HostileServer) -> None:
    """Connect, greet, ask once, close: neither descriptors nor memory of them stay."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    request = bytes_template("echo", 16).header(1, 0, [bytes(16)])
    before, grown_from = server.descriptors(), 0

    def live() -> None:
        socket = context.socket(zmq.DEALER)
        socket.connect(server.endpoint)
        socket.send(write_message(Hello("short/1", ("SLT1",), False), (1, 0, 0)))
        socket.send(request)
        for _ in range(2):
            assert socket.poll(int(PATIENCE_S * 1000))
            socket.recv_multipart()
        socket.close(linger=0)

    def attack(good: DigestLoad) -> None:
        nonlocal grown_from
        for number in range(CONNECTIONS):
            live()
            if number == MAX_CLIENTS:
                grown_from = server.resident_bytes()
            if number % 20 == 0:
                good.run_for(0.01)

    under_attack(server, attack, seed=11)
    context.term()
    wait_until(lambda: server.descriptors() <= before + 2, "the descriptors")
    assert server.resident_bytes() - grown_from < GROWTH_BYTES
