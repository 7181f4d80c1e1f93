"""CURVE with an allow-list: who is served, that the refused hear of it, and that nothing else gets past the handshake."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from guarded_server import SERVER_KEY, GuardedServer, guarded, traces
from scripted_server import ScriptedServer, answer
from server import PATIENCE_S, run_once, wait_until

from clients import AsyncClient, BadKeys, Client, ConnectionLost, ServerUnreachable, SlotlineError, Unauthorized
from schemas.key_files import read_key_pair, read_public_key
from schemas.messages import Failure, Hello, Welcome, read_message, write_message
from schemas.status import Code

BODY = {"payload": np.arange(100, dtype=np.uint8)}
HELLO = write_message(Hello("raw", ("SLT1",), False), (1, 0, 0))


@pytest.fixture(scope="module")
def server() -> Iterator[GuardedServer]:
    """One server for all tests of this module."""
    with guarded() as running:
        yield running


@pytest.fixture
def good(server: GuardedServer) -> Iterator[Client]:
    """A client that is served; that it still is after the test shows that others did it no harm."""
    with Client(server.endpoint, **server.keys_of("good")) as client:
        yield client
        assert_served(client)


def assert_served(client: Client) -> None:
    """Fail unless *client* gets its own answer."""
    assert np.array_equal(client.infer("echo", BODY)["payload"], BODY["payload"])


def refusal(client: Client) -> str:
    """Return why a call is not taken."""
    with pytest.raises(Unauthorized) as caught:
        client.infer("echo", BODY)
    assert caught.value.code == Code.UNAUTHORIZED
    return str(caught.value)


# --- who comes in ------------------------------------------------------------------------------------------------------------


def test_a_listed_client_is_served(server: GuardedServer, good: Client) -> None:
    """With its key from a file or as text, on as many connections as it likes."""
    pair = read_key_pair(server.place / "good.secret")
    server_key = read_public_key(server.place / SERVER_KEY)
    with Client(server.endpoint, server_key=server_key, key=(pair.public, pair.secret)) as other:
        assert_served(other)
    assert_served(good)


def test_the_asyncio_client_is_served_and_refused_alike(server: GuardedServer, good: Client) -> None:
    """The same keys, the same exception."""

    async def both() -> None:
        async with AsyncClient(server.endpoint, **server.keys_of("good")) as client:
            assert np.array_equal((await client.infer("echo", BODY))["payload"], BODY["payload"])
        with pytest.raises(Unauthorized, match="does not have this client's public key"):
            async with AsyncClient(server.endpoint, **server.keys_of("stranger")) as client:
                await client.infer("echo", BODY)

    asyncio.run(asyncio.wait_for(both(), PATIENCE_S))


def test_the_command_line_sends_with_keys(server: GuardedServer, good: Client) -> None:
    """Without the second one it says what is missing, in one line."""
    np.save(server.place / "x.npy", np.ones(4, np.float32))
    command = ["infer", "--endpoint", server.endpoint, "--model", "echo", "--server-key", SERVER_KEY]

    # What the lane says of itself comes from the server.
    assert "echo takes tensors of any names" in run_once(server.place, *command, "--key", "good.secret", "x.npy").stdout
    without = run_once(server.place, *command, "x.npy")
    assert (without.returncode, without.stdout) == (2, "")
    assert without.stderr.startswith("slotline: keys: expected server_key, and either key=")


# --- who does not ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "the server takes clients with keys only: give server_key"),
        ({"server_key": SERVER_KEY, "key_file": "stranger.secret"}, "have it put into its curve.clients directory"),
        ({"server_key": "stranger.pub", "key_file": "good.secret"}, "see whether server_key is its public key"),
    ],
    ids=["no key", "unknown key", "wrong server key"],
)
def test_who_is_refused_is_told_and_reaches_nobody(server: GuardedServer, good: Client, keys: dict[str, str], said: str) -> None:
    """By an exception with the cure, well before the timeout; the broker has not heard of it."""
    before = traces(server)

    with pytest.raises(Unauthorized, match=said):
        Client(server.endpoint, timeout_s=PATIENCE_S, **{name: server.place / file for name, file in keys.items()})  # type: ignore[arg-type]

    assert traces(server) == before


def test_a_wrong_server_key_is_named_by_calls_too(server: GuardedServer, good: Client) -> None:
    """Of a client that connects with its first call; also when the budget is over before that is certain."""
    keys = {"server_key": server.place / "stranger.pub", "key_file": server.place / "good.secret"}
    said = "see whether server_key is its public key"

    with Client(server.endpoint, connect=False, timeout_s=PATIENCE_S, **keys) as client:
        while not isinstance(error := client.infer("echo", BODY, budget_us=20_000, on_failure=lambda error: error), Unauthorized):
            assert isinstance(error, ServerUnreachable)
            assert said in str(error) or "last:" not in str(error)
        assert said in str(error)

    async def call() -> None:
        async with AsyncClient(server.endpoint, connect=False, timeout_s=PATIENCE_S, **keys) as client:
            with pytest.raises(Unauthorized, match=said):
                await client.infer("echo", BODY)
            with pytest.raises(Unauthorized, match=said):
                await client.connect()

    asyncio.run(asyncio.wait_for(call(), PATIENCE_S))


def test_keys_for_a_server_without_any_are_told(server: GuardedServer) -> None:
    """It is another server than the caller thinks. One that hangs up before its greeting is read looks like a wrong key."""
    with (
        ScriptedServer(server.place, answer) as plain,
        pytest.raises(Unauthorized, match=r"the server there uses no keys|whether it uses keys at all"),
    ):
        Client(plain.endpoint, timeout_s=PATIENCE_S, **server.keys_of("good"))


def test_a_key_that_cannot_be_read_is_told_before_anything_is_sent(server: GuardedServer) -> None:
    """As BadKeys, which is a SlotlineError too."""
    with pytest.raises(BadKeys, match=r"nobody\.secret: no such file"):
        Client(server.endpoint, **server.keys_of("nobody"))
    assert issubclass(BadKeys, SlotlineError)


def test_many_strangers_at_once_keep_nobody_out(server: GuardedServer, good: Client) -> None:
    """Each listed one is answered, no other; the log has few lines about them and no secret."""
    with zmq.Context() as context:
        pairs = [read_key_pair(server.place / f"{name}.secret") for name in ("good", "stranger")]
        sockets = [[raw_dealer(context, server, pair) for pair in pairs] for _ in range(50)]
        for listed, _ in sockets:
            assert listed.poll(PATIENCE_S * 1000)
            assert isinstance(read_message(listed.recv())[1], Welcome)
        assert not any(stranger.poll(0) for _, stranger in sockets)
        for socket_ in (socket_ for pair in sockets for socket_ in pair):
            socket_.close(linger=0)
    wait_until(lambda: server.events("refused"), "a log line")
    assert server.events("refused")[-1]["last_key"] == pairs[1].public
    assert not any(pair.secret in server.errors() for pair in pairs)


def raw_dealer(context: zmq.Context[Any], server: GuardedServer, pair: Any, routing_id: bytes = b"") -> zmq.Socket[bytes]:
    """Return a bare socket with the keys of *pair* that has said Hello."""
    dealer: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    dealer.setsockopt(zmq.CURVE_SERVERKEY, read_public_key(server.place / SERVER_KEY).encode())
    dealer.setsockopt(zmq.CURVE_PUBLICKEY, pair.public.encode())
    dealer.setsockopt(zmq.CURVE_SECRETKEY, pair.secret.encode())
    if routing_id:
        dealer.setsockopt(zmq.ROUTING_ID, routing_id)
    dealer.connect(server.endpoint)
    dealer.send(HELLO)
    return dealer


@pytest.mark.parametrize("routing_id", [b"camera", b"\xff\xfe"])
def test_a_client_that_names_its_socket_is_told_not_to(server: GuardedServer, good: Client, routing_id: bytes) -> None:
    """In whatever bytes: its key is its name."""
    with zmq.Context() as context:
        dealer = raw_dealer(context, server, read_key_pair(server.place / "good.secret"), routing_id)
        assert dealer.poll(PATIENCE_S * 1000)
        _, failure = read_message(dealer.recv())
        dealer.close(linger=0)

    assert isinstance(failure, Failure)
    assert (failure.code, "must not set a routing id" in failure.message) == (Code.UNAUTHORIZED, True)


# --- the list changes --------------------------------------------------------------------------------------------------------


def test_a_key_that_is_taken_off_is_refused_from_then_on(server: GuardedServer, good: Client) -> None:
    """On the connection that it has, call by call and packed, and at its next handshake; put back, it is served again."""
    server.put_on_list("leaver")
    with Client(server.endpoint, **server.keys_of("leaver")) as client:
        assert_served(client)
        server.take_off_list("leaver")

        assert "not on the server's list" in refusal(client)
        outcomes = client.infer_many("echo", [BODY] * 5, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Unauthorized] * 5
        with pytest.raises(Unauthorized):
            client.health()
        with pytest.raises(Unauthorized, match="does not have this client's public key"):
            Client(server.endpoint, **server.keys_of("leaver"))
        assert_served(good)

        server.put_on_list("leaver")
        assert_served(client)


def test_what_is_in_flight_when_a_key_is_taken_off_is_answered(server: GuardedServer, good: Client) -> None:
    """It was taken while the key was good; only what comes later is refused."""
    server.put_on_list("worker")
    with Client(server.endpoint, **server.keys_of("worker"), timeout_s=PATIENCE_S) as client:
        call = client.submit("pair", BODY)
        wait_until(lambda: (server.place / "written").exists() or call.done(), "the call to be in a slot")
        server.take_off_list("worker")
        refusal(client)
        (server.place / "leave").touch()

        assert np.array_equal(call.result()["answer"], BODY["payload"])


def test_a_key_taken_off_while_the_server_was_down_is_refused_by_the_next_call(place: Path) -> None:
    """What was in flight ends with ConnectionLost, as whenever a broker dies."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = GuardedServer(place, str(port))
    server.put_on_list("cam1")
    try:
        server.start()
        with Client(server.endpoint, **server.keys_of("cam1"), timeout_s=PATIENCE_S) as client:
            call = client.submit("pair", BODY)
            wait_until(lambda: (place / "written").exists() or call.done(), "the call to be in a slot")
            (place / "clients" / "cam1.pub").unlink()
            os.kill(server.child("broker"), signal.SIGKILL)

            with pytest.raises(ConnectionLost):
                call.result()
            assert "does not have this client's public key" in refusal(client)
        assert server.stop() == 0
    finally:
        print(server.errors()[-4000:])
        server.end()


# --- what is no client -------------------------------------------------------------------------------------------------------


def frame(body: bytes, flags: int = 0) -> bytes:
    """Return one frame of ZMTP, short or long."""
    return bytes([flags, len(body)]) + body if len(body) < 256 else bytes([flags | 2]) + len(body).to_bytes(8, "big") + body


def greeting(mechanism: bytes) -> bytes:
    """Return the greeting of a ZMTP 3.0 client."""
    return b"\xff" + bytes(8) + b"\x7f\x03\x00" + mechanism.ljust(20, b"\0") + bytes(32)


COMMAND = 4
JUNK = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20,
    "zeros": bytes(4096),
    "random": np.random.default_rng(3).bytes(4096),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "silence": b"",
    "half a greeting": greeting(b"CURVE")[:20],
    "zmtp 1.0": b"\x01\x00" + bytes([len(HELLO) % 255 + 1, 0]) + HELLO,
    "zmtp 2.0": b"\xff" + bytes(8) + b"\x7f\x01\x05" + frame(b"") + frame(HELLO),
    "zmtp 3 null": greeting(b"NULL") + frame(b"\x05READY", COMMAND) + frame(HELLO),
    "zmtp 3 plain": greeting(b"PLAIN") + frame(b"\x05HELLO\x01a\x01b", COMMAND) + frame(HELLO),
    "message before the handshake": greeting(b"CURVE") + frame(HELLO) * 3,
    "ready before the handshake": greeting(b"CURVE") + frame(b"\x05READY", COMMAND) + frame(HELLO),
    "empty curve hello": greeting(b"CURVE") + frame(b"\x05HELLO\x01\x00" + bytes(192), COMMAND) + frame(HELLO),
    "initiate without hello": greeting(b"CURVE") + frame(b"\x08INITIATE" + bytes(256), COMMAND) + frame(HELLO),
    "a frame without end": greeting(b"CURVE") + b"\x02" + (1 << 40).to_bytes(8, "big") + bytes(1000),
}  # fmt: skip


def test_junk_and_old_protocols_reach_nobody(server: GuardedServer, good: Client) -> None:
    """All of them are cut off, the broker has not heard of one, and others are served meanwhile."""
    before = traces(server)
    port = int(server.endpoint.rpartition(":")[2])
    peers = {name: socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for name in JUNK}
    for name, peer in peers.items():
        peer.sendall(JUNK[name])
    for _ in range(20):
        assert_served(good)

    for name, peer in peers.items():
        assert is_cut_off(peer), name
    after = traces(server)
    assert after == {**before, "received": before["received"] + 20, "answered": before["answered"] + 20}


def is_cut_off(peer: socket.socket) -> bool:
    """Read what the server says until it hangs up; True when it does, and said nothing of ours."""
    said = b""
    with peer:
        try:
            while part := peer.recv(4096):
                said += part
        except ConnectionResetError:
            pass
    return b"SLT1" not in said


def test_a_server_whose_secret_is_open_does_not_start(place: Path) -> None:
    """One line with the cure."""
    server = GuardedServer(place)
    (place / "server.secret").chmod(0o644)
    (place / "c.toml").write_text(server.config)

    run = run_once(place, "serve", "c.toml", "--endpoint", server.endpoint)

    assert (run.returncode, run.stdout) == (2, "")
    assert f"slotline: {place}/server.secret: every user of this machine may read this secret key: chmod 600" in run.stderr
    assert "Traceback" not in run.stderr
