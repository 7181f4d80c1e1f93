"""What clients in other languages do with a server that real ones are not on demand: tests that each inherits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from foreign_hostile import CUT_OFF, hostile_replies, sound_reply
from foreign_lanes import CONFIG, PATIENT, TICK, assert_refused
from foreign_probe import Probe, Reply, input_token
from places import StartServer
from scripted_server import ScriptedServer, answer, hang_up, silence
from server import wait_until
from tampering import TamperingProxy

import clients
from clients.errors import error_of
from schemas.error_templates import ErrorTemplates
from schemas.layout import read_layout
from schemas.messages import Failure, Limits, Welcome, write_message
from schemas.status import Code, KeyPolicy, Kind
from schemas.wire import Route

# What a client may say of a reply that was tampered with: it is still sound, or is not, or is for nobody, or ends the connection.
OF_HOSTILE = {
    "ok", "BadReply", "DeadlineExceeded", "ConnectionLost", "RequestRefused", "RequestFailed", "Busy", "Unauthorized",
    "Cancelled", "Superseded",
}  # fmt: skip
Reaction = Callable[[Route], Sequence[bytes] | None]
# More than ZeroMQ and the kernel keep on both sides when nobody reads.
FULL = 2_500


def refused_with(code: Code, message: str = "as it is", **more: object) -> Reaction:
    """Return what answers a request with an error."""
    templates = ErrorTemplates()
    return lambda route: [templates.header((route.request_id, 0, 0), code, message, **more)]  # type: ignore[arg-type]


def welcome_with(limits: Limits, delay_s: float = 0.0) -> Reaction:
    """Return what answers a Hello with these limits, late if told so."""

    def hello(route: Route) -> list[bytes]:
        time.sleep(delay_s)
        return [write_message(Welcome("scripted", 1, limits), (route.request_id, 0, 0))]

    return hello


def in_turn(*first: Reaction) -> Reaction:
    """Return a script that reacts so to the first requests, and answers all others."""
    left = iter(first)
    return lambda route: next(left, answer)(route)


def error_and_text(reply: Reply) -> tuple[str, str]:
    """Return the class of the error that a command ended with, and what it says."""
    return reply.get("error", "none"), reply.get("message", "")


class ConnectionCases:
    """The tests; not collected by itself."""

    # --- what is sent --------------------------------------------------------------------------------------------------------

    def test_options_of_a_request_are_on_the_wire(self, place: Path, probe_command: list[str]) -> None:
        """Those of the route and those of the body."""
        options = "key=18446744073709551615;key_policy=LatestN;latest_n=3;priority=2;born_us=77;version=1;client_request_id=part"
        with ScriptedServer(place, answer) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            assert probe.infer("any", TICK, options=options)["ok"]
            route, layout = server.received[0], read_layout(server.headers[0])

        assert (route.key, route.priority, route.born_us) == (2**64 - 1, 2, 77)
        assert (layout.key_policy, layout.latest_n, layout.version) == (KeyPolicy.LATEST_N, 3, "1")

    def test_a_request_without_a_budget_has_the_lanes(self, place: Path, probe_command: list[str]) -> None:
        """Unless its client is less patient than the server's lanes."""
        with Probe(probe_command) as probe:
            for default_us, sent_us in ((30_000_000, 0), (30_000_001, 30_000_000)):
                hello = welcome_with(Limits(default_budget_us=default_us))
                with ScriptedServer(place, answer, hello=hello) as server:
                    probe.connect(server.endpoint, 30_000)
                    assert probe.infer("any", TICK)["ok"]
                    assert probe.infer("any", TICK, options="budget_us=29000000")["ok"]
                    assert [route.budget_us for route in server.received] == [sent_us, 29_000_000]

    # --- what the server says ------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("code", [code for code in Code if code], ids=lambda code: code.name)
    def test_each_code_is_the_exception_that_python_raises(self, place: Path, probe_command: list[str], code: Code) -> None:
        """With all that the error carries."""
        script = refused_with(code, "käfer", retry_after_us=5_000, stage="decode", field="x")
        with ScriptedServer(place, script) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            reply = probe.infer("any", TICK)

        assert reply["error"] == type(error_of(Failure(code))).__name__
        assert reply["error"] in clients.__all__
        assert (reply["code"], reply["field"], reply["stage"], reply["retry_after_us"]) == (code, "x", "decode", 5_000)
        assert reply["message"].endswith(": käfer")

    def test_a_request_that_a_newer_one_of_its_key_replaces_is_superseded(self, place: Path, probe_command: list[str]) -> None:
        """The newer one has the answer."""
        waiting: list[Route] = []

        def latest_only(route: Route) -> list[bytes]:
            waiting.append(route)
            if len(waiting) < 2:
                return []
            return [*(refused_with(Code.SUPERSEDED)(waiting[0]) or ()), *answer(route)]

        with ScriptedServer(place, latest_only) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            probe.ask("begin", 2, "any", "key=7;key_policy=LatestOnly", TICK)
            outcomes = probe.ask("outcomes")["outcomes"]

        assert [outcome.get("error") for outcome in outcomes] == ["Superseded", None]
        assert {route.key for route in waiting} == {7}

    def test_more_calls_than_the_server_takes_are_refused_unsent(self, place: Path, probe_command: list[str]) -> None:
        """As Busy."""
        with ScriptedServer(place, silence, hello=welcome_with(Limits(max_in_flight=2))) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            probe.ask("begin", 2, "any", "-", TICK)
            reply = probe.infer("any", TICK)
            wait_until(lambda: len(server.received) == 2, "the two")
            probe.ask("cancel")
            assert (reply["error"], reply["code"], reply["field"]) == ("Busy", Code.BUSY, "max_in_flight")
            assert probe.ask("end") == {"Cancelled": 2}
            wait_until(lambda: len(server.received) == 4, "the cancels")
            assert {route.kind for route in server.received[2:]} == {Kind.CANCEL}

    # --- the end of calls ----------------------------------------------------------------------------------------------------

    def test_cancelling_ends_a_call_and_tells_the_server(self, place: Path, probe_command: list[str]) -> None:
        """By the request's id."""
        with ScriptedServer(place, silence) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            probe.ask("begin", 1, "any", "-", TICK)
            wait_until(lambda: server.received, "the request")
            assert probe.ask("cancel") == {"cancelled": 1}
            (outcome,) = probe.ask("outcomes")["outcomes"]
            assert (outcome["error"], outcome["code"]) == ("Cancelled", Code.CANCELLED)
            wait_until(lambda: len(server.received) == 2, "the cancel")
            first, second = server.received
            assert (second.kind, second.request_id) == (Kind.CANCEL, first.request_id)

    def test_closing_ends_what_is_in_flight(self, place: Path, probe_command: list[str]) -> None:
        """As if it were cancelled."""
        with ScriptedServer(place, silence) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            probe.ask("begin", 3, "any", "-", TICK)
            probe.ask("close")
            assert probe.ask("end") == {"Cancelled": 3}

    def test_the_end_of_a_connection_ends_every_call(self, place: Path, probe_command: list[str]) -> None:
        """Long before their deadlines; the next call connects anew."""
        with ScriptedServer(place, in_turn(silence, silence, hang_up)) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            probe.ask("begin", 3, "any", "-", TICK)
            outcomes = probe.ask("outcomes")["outcomes"]
            assert {outcome["error"] for outcome in outcomes} == {"ConnectionLost"}
            assert all("the server closed the connection" in outcome["message"] for outcome in outcomes)
            assert probe.infer("any", TICK)["ok"]
            assert server.epoch == 2

    def test_a_reply_that_came_before_the_end_is_not_lost(self, place: Path, probe_command: list[str]) -> None:
        """Also when nobody had read it yet."""
        with Probe(probe_command) as probe:
            with ScriptedServer(place, answer) as server:
                probe.connect(server.endpoint)
                probe.ask("begin", 1, "any", "-", TICK)
                wait_until(lambda: server.received, "the request")
            assert probe.ask("end") == {"ok": 1}

    def test_a_server_that_does_not_read_blocks_nobody(self, place: Path, probe_command: list[str]) -> None:
        """When every buffer is full, calls end by their budgets."""
        with ScriptedServer(place, silence, reads=False) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            large = input_token("x", "UINT8", (5_000,), bytes(5_000))
            probe.ask("begin", FULL, "any", "budget_us=5000", large)
            assert probe.ask("end") == {"DeadlineExceeded": FULL}

    def test_garbage_ends_the_connection(self, place: Path, probe_command: list[str]) -> None:
        """When nobody knows whose it was; the next call finds another one."""
        with ScriptedServer(place, in_turn(lambda _: [b"garbage"])) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            assert probe.infer("any", TICK)["error"] == "ConnectionLost"
            assert probe.infer("any", TICK)["ok"]

    def test_hostile_replies_end_their_call_and_nothing_else(self, place: Path, probe_command: list[str]) -> None:
        """Words overwritten, ends cut off, bodies of another kind: each call ends, the next one is served."""
        hostile = list(hostile_replies())
        replies = iter(hostile)
        ends: list[str] = []

        def script(route: Route) -> list[bytes]:
            mutate = next(replies, None)
            return [sound_reply(route) if mutate is None else mutate(route)]

        with ScriptedServer(place, script) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            for _ in hostile:
                reply = probe.infer("any", TICK, options="budget_us=30000")
                ends.append("ok" if reply["ok"] else reply["error"])
            assert probe.infer("any", TICK)["outputs"]["score"]["dtype"] == "FP64"
        assert set(ends) <= OF_HOSTILE
        assert ends.count("BadReply") > len(ends) / 2
        assert ends[-len(CUT_OFF) :] == ["BadReply"] * len(CUT_OFF)

    def test_what_was_damaged_on_the_way_is_refused(
        self, make_server: StartServer, place: Path, probe_command: list[str]
    ) -> None:
        """When the request has a checksum, inline or in a frame; else nobody notices."""
        server = make_server(CONFIG).start()
        contents = [input_token("x", "UINT8", (size,), bytes(size)) for size in (100, 100_000)]
        with TamperingProxy(place, server.endpoint) as proxy, Probe(probe_command) as probe:
            probe.connect(proxy.endpoint)
            for content in contents:
                assert_refused(probe.infer("echo", content, options=f"checksum=1;{PATIENT}"), Code.BAD_CHECKSUM, "checksum")
                assert probe.infer("echo", content, options=PATIENT)["outputs"]["x"]["hex"] != content.rpartition(":")[2]
        assert server.stop() == 0

    # --- the beginning -------------------------------------------------------------------------------------------------------

    def test_nobody_there_is_said_with_endpoint_and_cure(self, place: Path, probe_command: list[str]) -> None:
        """After the timeout, not for ever; what is no endpoint at once."""
        with Probe(probe_command) as probe:
            error, text = error_and_text(probe.try_connect(f"ipc://{place}/nobody", 100))
            assert error == "ServerUnreachable"
            assert f"ipc://{place}/nobody: no server answered within 100 ms" in text
            assert "slotline serve CONFIG" in text
            for endpoint, meant in (("run/line.ipc", "ipc://run/line.ipc"), ("localhost:7000", "tcp://localhost:7000")):
                error, text = error_and_text(probe.try_connect(endpoint))
                assert error == "ServerUnreachable"
                assert f"did you mean {meant}?" in text

    def test_a_client_waits_for_a_server_that_is_starting(self, place: Path, probe_command: list[str]) -> None:
        """Within its timeout."""
        server = ScriptedServer(place, answer)
        threading.Timer(0.2, server.__enter__).start()
        with Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            assert probe.infer("any", TICK)["ok"]
        server.__exit__()

    def test_a_client_can_be_made_before_its_server(self, place: Path, probe_command: list[str]) -> None:
        """The first call connects, and waits for it as long as its budget."""
        with Probe(probe_command) as probe:
            probe.connect(f"ipc://{place}/scripted", connect=0)
            error, text = error_and_text(probe.infer("any", TICK, options="budget_us=100000"))
            assert (error, "no server answered within 100 ms" in text) == ("ServerUnreachable", True)
            probe.say("infer", "any", PATIENT, TICK)
            with ScriptedServer(place, answer):
                assert probe.hear()["ok"]

    def test_a_server_is_reached_by_calls_that_are_shorter_than_connecting(self, place: Path, probe_command: list[str]) -> None:
        """What one call has begun the next one finds further."""
        with ScriptedServer(place, answer, hello=welcome_with(Limits(), 0.3)) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint, connect=0)
            reply = probe.infer("any", TICK, options="budget_us=20000")
            assert reply["error"] == "ServerUnreachable"
            wait_until(lambda: probe.infer("any", TICK, options="budget_us=20000")["ok"], "an answer")

    def test_a_refused_hello_is_told(self, place: Path, probe_command: list[str]) -> None:
        """With the server's reason."""
        hello = refused_with(Code.BUSY, "max_clients: 1024 are connected")
        with ScriptedServer(place, answer, hello=hello) as server, Probe(probe_command) as probe:
            error, text = error_and_text(probe.try_connect(server.endpoint))
            assert (error, "max_clients" in text) == ("Busy", True)

    def test_ids_of_calls_in_flight_are_never_the_same(self, place: Path, probe_command: list[str]) -> None:
        """On one connection, questions included."""
        with ScriptedServer(place, silence) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            probe.ask("begin", 100, "any", "-", TICK)
            wait_until(lambda: len(server.received) == 100, "the requests")
            ids = np.array([route.request_id for route in server.received])
            probe.ask("cancel")
            probe.ask("end")

        assert len(np.unique(ids)) == 100
        assert ids.all()
