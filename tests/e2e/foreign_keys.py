"""Clients in other languages at a server that takes clients with keys only: tests that each inherits."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_lanes import PATIENT, TICK, WORKS
from foreign_probe import Probe
from guarded_server import SERVER_KEY, GuardedServer, guarded, traces
from scripted_server import ScriptedServer, answer
from server import wait_until

from schemas.status import Code

# Far above what a refusal takes: who hears of it only by this timeout does not hear of it.
TIMEOUT_MS = 25_000


@pytest.fixture(scope="module")
def guarded_server() -> Iterator[GuardedServer]:
    """One server for all tests of this module."""
    with guarded() as running:
        yield running


def assert_unauthorized(reply: dict[str, Any], said: str) -> None:
    """Fail unless the client was refused, and told *said*."""
    assert (reply.get("error"), reply.get("code")) == ("Unauthorized", Code.UNAUTHORIZED), reply
    assert said in reply["message"]


class KeyCases:
    """The tests; not collected by itself."""

    def test_a_listed_client_is_served(self, guarded_server: GuardedServer, probe_command: list[str]) -> None:
        """With its keys from the files that `slotline keys` writes."""
        with Probe(probe_command) as probe:
            probe.connect(guarded_server.endpoint, **guarded_server.keys_of("good"))
            assert probe.infer("echo", TICK, options=PATIENT)["ok"]

    @pytest.mark.parametrize(
        ("keys", "said"),
        [
            ({}, "the server takes clients with keys only"),
            ({"server_key": SERVER_KEY, "key_file": "stranger.secret"}, "have it put into its curve.clients directory"),
            ({"server_key": "stranger.pub", "key_file": "good.secret"}, "is its public key"),
        ],
        ids=["no key", "unknown key", "wrong server key"],
    )
    def test_who_is_refused_is_told_and_reaches_nobody(
        self, guarded_server: GuardedServer, probe_command: list[str], keys: dict[str, str], said: str
    ) -> None:
        """By an exception with the cure, well before the timeout; the broker has not heard of it."""
        before = traces(guarded_server)
        files = {name: guarded_server.place / file for name, file in keys.items()}
        with Probe(probe_command) as probe:
            assert_unauthorized(probe.try_connect(guarded_server.endpoint, TIMEOUT_MS, **files), said)
            probe.connect(guarded_server.endpoint, TIMEOUT_MS, connect=0, **files)
            assert_unauthorized(probe.infer("echo", TICK), said)

        assert traces(guarded_server) == before

    def test_a_wrong_server_key_is_named_by_calls_too(self, guarded_server: GuardedServer, probe_command: list[str]) -> None:
        """Also when the budget is over before that is certain."""
        place = guarded_server.place
        with Probe(probe_command) as probe:
            keys = {"server_key": place / "stranger.pub", "key_file": place / "good.secret"}
            probe.connect(guarded_server.endpoint, TIMEOUT_MS, connect=0, **keys)
            while (reply := probe.infer("echo", TICK, options="budget_us=20000"))["error"] != "Unauthorized":
                assert reply["error"] == "ServerUnreachable"
                assert "is its public key" in reply["message"] or "last:" not in reply["message"]
            assert_unauthorized(reply, "is its public key")

    def test_keys_for_a_server_without_any_are_told(self, guarded_server: GuardedServer, probe_command: list[str]) -> None:
        """It is another server than the caller thinks. One that hangs up before its greeting is read looks like a wrong key."""
        with ScriptedServer(guarded_server.place, answer) as plain, Probe(probe_command) as probe:
            reply = probe.try_connect(plain.endpoint, TIMEOUT_MS, **guarded_server.keys_of("good"))
            assert_unauthorized(reply, "keys")

    def test_keys_that_cannot_be_used_are_told_before_anything_is_sent(
        self, guarded_server: GuardedServer, place: Path, probe_command: list[str]
    ) -> None:
        """A missing file, one that everybody may read, one without a key, one with a damaged key, and halves of two pairs."""
        good, stranger = ((guarded_server.place / f"{name}.secret").read_text() for name in ("good", "stranger"))
        lines = good.splitlines()
        mixed = [*lines[:-1], stranger.splitlines()[-1]]
        files = {
            "nobody": (None, 0o600, "no such file or directory"),
            "open": (good, 0o644, "chmod 600"),
            "public": ("\n".join(lines[:-1]), 0o600, "has no line secret-key"),
            "huge": (good + " " * 5_000, 0o600, "has no line public-key"),
            "damaged": ("\n".join([*lines[:-1], lines[-1][:-5] + '"']), 0o600, "its secret-key is not 40 characters of Z85"),
            "mixed": ("\n".join(mixed), 0o600, "does not belong to the public key"),
        }
        with Probe(probe_command) as probe:
            for name, (text, mode, said) in files.items():
                path = place / f"{name}.secret"
                if text is not None:
                    path.write_text(text)
                    path.chmod(mode)
                reply = probe.try_connect(guarded_server.endpoint, server_key=guarded_server.place / SERVER_KEY, key_file=path)
                assert (reply["error"], said in reply["message"]) == ("BadKeys", True), reply
                assert lines[-1].split('"')[1][:20] not in reply["message"]

    def test_a_key_that_is_taken_off_is_refused_from_then_on(
        self, guarded_server: GuardedServer, probe_command: list[str]
    ) -> None:
        """On the connection that it has, one by one and packed, and at its next handshake; put back, it is served again."""
        guarded_server.put_on_list("leaver")
        keys = guarded_server.keys_of("leaver")
        with Probe(probe_command) as probe, Probe(probe_command) as other:
            probe.connect(guarded_server.endpoint, **keys)
            guarded_server.take_off_list("leaver")

            assert_unauthorized(probe.infer("echo", TICK), "not on the server's list")
            assert probe.ask("many", 5, "echo", "-", TICK) == {"Unauthorized": 5}
            assert_unauthorized(probe.ask("health"), "not on the server's list")
            assert_unauthorized(other.try_connect(guarded_server.endpoint, TIMEOUT_MS, **keys), "public key on its list")

            guarded_server.put_on_list("leaver")
            assert probe.infer("echo", TICK, options=PATIENT)["ok"]

    def test_what_is_in_flight_when_a_key_is_taken_off_is_answered(
        self, guarded_server: GuardedServer, probe_command: list[str]
    ) -> None:
        """It was taken while the key was good; only what comes later is refused."""
        place = guarded_server.place
        guarded_server.put_on_list("worker")
        with Probe(probe_command) as probe:
            probe.connect(guarded_server.endpoint, **guarded_server.keys_of("worker"))
            probe.ask("begin", 1, "pair", PATIENT, WORKS)
            wait_until((place / "written").exists, "the call to be in a slot")
            guarded_server.take_off_list("worker")
            assert_unauthorized(probe.infer("echo", TICK), "not on the server's list")
            (place / "leave").touch()

            assert probe.ask("end") == {"ok": 1}

    def test_a_key_taken_off_while_the_server_was_down_is_refused_by_the_next_call(
        self, place: Path, probe_command: list[str]
    ) -> None:
        """What was in flight ends with ConnectionLost, as whenever a broker dies."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = GuardedServer(place, str(port))
        server.put_on_list("cam1")
        try:
            server.start()
            with Probe(probe_command) as probe:
                probe.connect(server.endpoint, **server.keys_of("cam1"))
                probe.ask("begin", 1, "pair", PATIENT, WORKS)
                wait_until((place / "written").exists, "the call to be in a slot")
                (place / "clients" / "cam1.pub").unlink()
                os.kill(server.child("broker"), signal.SIGKILL)

                assert probe.ask("end") == {"ConnectionLost": 1}
                assert_unauthorized(probe.infer("echo", TICK), "public key on its list")
            assert server.stop() == 0
        finally:
            print(server.errors()[-4000:])
            server.end()
