"""What clients in other languages see when a server is killed, stopped, told to end, or not there: tests that each inherits."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import configs
from foreign_lanes import BASE, CONFIG, HANGS, PATIENT, TICK, WORKS, kill_broker, received
from foreign_probe import Probe
from places import StartServer
from raw_client import statistics
from server import PATIENCE_S, Server, wait_until

from schemas.status import Code

ECHO = "[lane.echo]\nslots = 8\nmax_encoded_bytes = 4096\n"


def held(place: Path, drain_s: float = 10) -> str:
    """Return a lane that holds its slots until a file appears, and an echo lane."""
    lane = configs.waiting(str(place)).replace("slots = 2\n", "slots = 2\nidempotent = true\n")
    return lane.replace("drain_s = 10", f"drain_s = {drain_s}") + ECHO


def hold(probe: Probe, server: Server, count: int = 2) -> None:
    """Begin calls that are held in their slots."""
    probe.ask("begin", count, "pair", PATIENT, WORKS)
    wait_until(lambda: (server.place / "written").exists() and received(server) == count, "the calls to be in their slots")


def told_to_end(server: Server) -> None:
    """Send SIGTERM and wait until it was heard."""
    server.signal(signal.SIGTERM)
    wait_until(lambda: server.events("stopping"), "the signal's arrival")


class DeathCases:
    """The tests; not collected by itself."""

    def test_calls_end_with_the_broker_and_the_client_goes_on(self, make_server: StartServer, probe_command: list[str]) -> None:
        """Killed twice: with calls that hang, and under load. Every call ends; the same client process connects anew."""
        server = make_server(CONFIG).start()
        with Probe(probe_command) as probe:
            first = probe.connect(server.endpoint)
            probe.ask("begin", 100, "bad", "-", HANGS)
            wait_until(lambda: received(server) >= 100, "the requests")
            kill_broker(server)
            assert probe.ask("end") == {"ConnectionLost": 100}
            assert probe.infer("echo", TICK, options=PATIENT)["ok"]

            before = received(server)
            probe.say("many", 10_000, "echo", PATIENT, TICK)
            wait_until(lambda: received(server) >= before + 500, "requests under way")
            kill_broker(server)
            ended = probe.hear()
            assert ended.keys() == {"ok", "ConnectionLost"}
            assert sum(ended.values()) == 10_000
            assert ended["ConnectionLost"] <= 512
            assert probe.infer("echo", TICK, options=PATIENT)["ok"]
            assert probe.connect(server.endpoint) != first
        assert server.stop() == 0

    def test_a_stopped_broker_ends_calls_like_a_killed_one(self, make_server: StartServer, probe_command: list[str]) -> None:
        """It does not turn for 5 s, and is killed."""
        server = make_server(CONFIG).start()
        with Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            probe.ask("begin", 2, "bad", PATIENT, HANGS)
            wait_until(lambda: received(server) == 2, "the requests")
            os.kill(server.child("broker"), signal.SIGSTOP)

            assert probe.ask("end") == {"ConnectionLost": 2}
            assert probe.infer("echo", TICK, options=PATIENT)["ok"]
        assert server.stop() == 0

    def test_a_killed_supervisor_ends_calls_and_then_nobody_is_there(
        self, make_server: StartServer, probe_command: list[str]
    ) -> None:
        """All its processes die with it."""
        server = make_server(CONFIG).start()
        with Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            probe.ask("begin", 2, "bad", PATIENT, HANGS)
            wait_until(lambda: received(server) == 2, "the requests")
            server.kill()

            assert probe.ask("end") == {"ConnectionLost": 2}
            assert probe.infer("echo", TICK, options="budget_us=200000")["error"] in ("ServerUnreachable", "ConnectionLost")
            assert probe.infer("echo", TICK, options="budget_us=200000")["error"] == "ServerUnreachable"
            server.start()
            assert probe.infer("echo", TICK, options=PATIENT)["ok"]
        assert server.stop() == 0

    def test_a_broker_killed_at_the_first_start_is_waited_for(self, make_server: StartServer, probe_command: list[str]) -> None:
        """The connection comes late."""
        server = make_server(BASE)
        with Probe(probe_command) as probe:
            probe.say_connect(server.endpoint)
            server.launch()
            os.kill(server.child("broker"), signal.SIGKILL)

            assert "epoch" in probe.hear()
            assert probe.infer("echo", TICK, options=PATIENT)["ok"]
        server.wait_ready()
        assert server.stop() == 0

    def test_a_server_told_to_end_answers_what_it_took(
        self, make_server: StartServer, place: Path, probe_command: list[str]
    ) -> None:
        """Though a stage is being replaced meanwhile; what comes later is told to go elsewhere."""
        server = make_server(held(place)).start()
        with Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            hold(probe, server)
            told_to_end(server)
            late = probe.infer("echo", TICK)
            os.kill(server.child("pair.decode.0"), signal.SIGKILL)
            (place / "leave").touch()

            assert (late["error"], late["code"]) == ("Busy", Code.DRAINING)
            assert probe.ask("end") == {"ok": 2}
            assert server.wait() == 0

    def test_a_server_in_a_hurry_answers_the_rest(self, make_server: StartServer, place: Path, probe_command: list[str]) -> None:
        """Told twice, or when drain_s is over."""
        for is_told_twice in (True, False):
            server = make_server(held(place, 10 if is_told_twice else 0.5)).start()
            with Probe(probe_command) as probe:
                probe.connect(server.endpoint)
                hold(probe, server)
                told_to_end(server)
                if is_told_twice:
                    server.signal(signal.SIGTERM)
                outcomes = probe.ask("outcomes")["outcomes"]

                assert [(outcome["error"], outcome["code"]) for outcome in outcomes] == [("Busy", Code.DRAINING)] * 2
                assert server.wait() == 0
            (place / "written").unlink()

    def test_a_broker_killed_while_it_drains_ends_calls(
        self, make_server: StartServer, place: Path, probe_command: list[str]
    ) -> None:
        """And the server."""
        server = make_server(held(place)).start()
        with Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            hold(probe, server)
            told_to_end(server)
            os.kill(server.child("broker"), signal.SIGKILL)

            assert probe.ask("end") == {"ConnectionLost": 2}
            assert server.wait() == 1

    def test_a_fail_safe_call_returns_its_value_whatever_dies(self, make_server: StartServer, probe_command: list[str]) -> None:
        """No server yet, a stage that hangs, an output that is not there, a broker that is killed, and no server any more."""
        server = make_server(CONFIG)
        with Probe(probe_command) as probe:
            probe.connect(server.endpoint, connect=0)
            assert probe.infer("echo", TICK, options="on_failure=NG;budget_us=200000") == {"value": "NG"}
            server.start()
            assert probe.infer("echo", TICK, options=PATIENT)["ok"]
            assert probe.infer("bad", HANGS, options="on_failure=NG;budget_us=200000") == {"value": "NG"}
            assert probe.infer("echo", TICK, options=f"on_failure=NG;{PATIENT}") == {"value": "NG"}
            before = received(server)
            probe.say("infer", "bad", "on_failure=NG", HANGS)
            wait_until(lambda: received(server) == before + 1, "the request")
            kill_broker(server)
            assert probe.hear() == {"value": "NG"}
            assert probe.infer("echo", TICK, options=PATIENT)["ok"]
            assert server.stop() == 0
            assert probe.infer("echo", TICK, options="on_failure=NG;budget_us=200000") == {"value": "NG"}
            assert probe.infer("echo", TICK, options="budget_us=200000")["error"] == "ServerUnreachable"

    def test_cancelling_ends_calls_and_frees_their_places(self, make_server: StartServer, probe_command: list[str]) -> None:
        """A real server hears of it: what waited is dropped."""
        server = make_server(CONFIG).start()
        with Probe(probe_command) as probe:
            probe.connect(server.endpoint, int(PATIENCE_S * 1000))
            probe.ask("begin", 5, "bad", PATIENT, HANGS)
            wait_until(lambda: received(server) == 5, "the requests")

            assert probe.ask("cancel") == {"cancelled": 5}
            assert probe.ask("end") == {"Cancelled": 5}
            wait_until(lambda: statistics(server.control)["ledger.in_flight"] == 0, "the server to let go of them")
            assert probe.infer("echo", TICK, options=PATIENT)["ok"]
        server.signal(signal.SIGTERM)
        assert server.stop() == 0
