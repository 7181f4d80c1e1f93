"""How a server ends: told to, told twice, or killed. What was accepted is answered, and nothing is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import configs
import pytest
from load import DigestLoad
from places import StartServer
from raw_client import RawClient, bytes_template, statistics
from server import DEMO, left_behind, memory_of, pids, wait_until
from stages_for_tests import SLOW

ACCEPTED = 400


def slow_payload(number: int) -> bytes:
    """Return a payload that keeps the stage busy for 20 ms."""
    return bytes([SLOW]) + number.to_bytes(4, "little")


def send_slow(client: RawClient, count: int) -> None:
    """Send *count* requests of 20 ms each."""
    template = bytes_template("bad", 5)
    for number in range(count):
        client.send(template, [slow_payload(number)], {"echo": slow_payload(number)})


def test_told_to_end_it_answers_what_it_accepted(make_server: StartServer) -> None:
    """SIGTERM with hundreds waiting and running: each gets its result, the exit code is 0; who comes later is refused."""
    server = make_server(configs.digests()).start()
    load = DigestLoad(server.endpoint, seed=1, outstanding=ACCEPTED)
    load.run_for(0.5)
    wait_until(lambda: statistics(server.control)["ledger.received"] == load.sent, "all requests to be received")
    accepted = load.sent
    server.signal(signal.SIGTERM)
    wait_until(lambda: server.events("stopping"), "the signal's arrival")
    load.send_one()
    load.client.finish(timeout_s=10)

    assert server.wait() == 0
    load.client.tally.strange.clear()
    assert load.client.tally.ok in (accepted, accepted + 1)
    assert not load.client.tally.wrong
    assert not load.client.tally.doubled
    # The late one is answered as long as there is somebody to answer it.
    assert load.client.tally.errors.total() + len(load.client.pending) + load.client.tally.ok == accepted + 1
    assert set(load.client.tally.errors) <= {"DRAINING"}
    load.close()


def test_told_twice_it_hurries(make_server: StartServer) -> None:
    """What is not finished is answered DRAINING; nothing is lost, and the exit code is still 0."""
    server = make_server(configs.misbehaving(idempotent=True, drain_s=60)).start()
    with RawClient(server.endpoint) as client:
        send_slow(client, ACCEPTED)
        wait_until(lambda: statistics(server.control)["ledger.received"] == ACCEPTED, "all requests to be received")
        server.signal(signal.SIGTERM)
        wait_until(lambda: server.events("stopping"), "the first signal's arrival")
        server.signal(signal.SIGTERM)
        client.finish()

        assert server.wait() == 0
        client.assert_nothing_amiss()
        assert client.tally.ok + client.tally.errors["DRAINING"] == ACCEPTED
        assert client.tally.errors["DRAINING"] > 0


def test_when_the_time_to_drain_is_over_the_rest_is_answered(make_server: StartServer) -> None:
    """drain_s bounds the wait; the rest gets DRAINING."""
    server = make_server(configs.misbehaving(idempotent=True, drain_s=0.5)).start()
    with RawClient(server.endpoint) as client:
        send_slow(client, ACCEPTED)
        wait_until(lambda: statistics(server.control)["ledger.received"] == ACCEPTED, "all requests to be received")
        server.signal(signal.SIGTERM)
        client.finish()

        assert server.wait() == 0
        client.assert_nothing_amiss()
        assert client.tally.ok + client.tally.errors["DRAINING"] == ACCEPTED
        assert client.tally.errors["DRAINING"] > 0


def test_told_to_end_while_a_stage_is_being_replaced_it_answers_all(make_server: StartServer) -> None:
    """A worker is killed at the moment of the SIGTERM: its work still runs, in its successor."""
    server = make_server(configs.digests()).start()
    load = DigestLoad(server.endpoint, seed=2, outstanding=ACCEPTED)
    load.run_for(0.3)
    wait_until(lambda: statistics(server.control)["ledger.received"] == load.sent, "all requests to be received")
    server.signal(signal.SIGTERM)
    os.kill(server.child("digests.preprocess.0"), signal.SIGKILL)
    load.finish()

    assert server.wait() == 0
    load.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_before_it_serves_it_ends(make_server: StartServer, number: int) -> None:
    """Nothing was accepted: exit code 0, nothing left."""
    server = make_server(DEMO)
    server.launch()
    server.child("broker")
    server.signal(number)

    assert server.wait() == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGHUP, 0), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_ended_while_it_reads_the_models_it_leaves_nothing(make_server: StartServer, place: Path, number: int, code: int) -> None:
    """A user's setup that never returns ends with the server that asked for it. Told to stop, it does, with exit code 0."""
    server = make_server(configs.digests().replace("linger_ms = 0", f'hang_in = "{place}"'))
    server.launch()
    wait_until((place / "setting-up").exists, "the stage's setup")
    server.signal(number)

    assert server.wait() == code
    wait_until(lambda: left_behind(place) == [], "its child's end")


def test_when_the_supervisor_is_killed_nothing_survives_and_the_next_start_sweeps(make_server: StartServer) -> None:
    """kill -9 under load: its processes and their memory go at once, its files at the next start, which serves."""
    server = make_server(configs.digests()).start()
    load = DigestLoad(server.endpoint, seed=3)
    load.run_for(0.3)
    server.kill()
    place = server.place
    wait_until(lambda: not any("process" in found or "memory" in found for found in left_behind(place)), "its processes to end")
    assert any("slotline-" in found for found in left_behind(place)), "nothing there to sweep: this test proves nothing"
    load.close()

    again = make_server(configs.digests()).start()
    fresh = DigestLoad(again.endpoint, seed=4)
    fresh.run_for(0.3)
    fresh.finish()
    fresh.close()
    assert sum(path.name.startswith("slotline-") for path in place.iterdir()) == 1
    assert again.stop() == 0


def test_a_broker_killed_while_it_drains_ends_the_server(make_server: StartServer) -> None:
    """Answers were lost with it: the exit code says so, and no new epoch begins."""
    server = make_server(configs.misbehaving(idempotent=True, drain_s=60)).start()
    with RawClient(server.endpoint) as client:
        send_slow(client, ACCEPTED)
        wait_until(lambda: statistics(server.control)["ledger.received"] == ACCEPTED, "all requests to be received")
        server.signal(signal.SIGTERM)
        wait_until(lambda: server.events("stopping"), "the signal's arrival")
        os.kill(server.child("broker"), signal.SIGKILL)

        assert server.wait() == 1


def test_memory_is_held_by_the_servers_processes_alone(make_server: StartServer) -> None:
    """The lane's arena and the board have no name in the file system, and only its own processes have them open."""
    server = make_server(configs.digests()).start()
    family = {server.pid, *server.children().values()}

    holders = {pid for pid in pids() if "digests" in memory_of(pid)}

    assert family <= holders
    assert server.stop() == 0
    assert not any("digests" in memory_of(pid) for pid in family)


@pytest.mark.long
def test_told_to_end_under_load_twenty_times(make_server: StartServer) -> None:
    """Each time all accepted are answered and the exit code is 0."""
    for seed in range(20):
        server = make_server(configs.digests()).start()
        load = DigestLoad(server.endpoint, seed=seed, outstanding=ACCEPTED)
        load.run_for(0.1 * (seed % 5))
        wait_until(lambda: statistics(server.control)["ledger.received"] == load.sent, "all requests to be received")  # noqa: B023
        server.signal(signal.SIGTERM)
        load.finish()
        assert server.wait() == 0
        load.close()
        assert left_behind(server.place) == []


def test_its_group_alone_gets_a_terminals_interrupt(make_server: StartServer) -> None:
    """Ctrl-C reaches the supervisor only; the children have groups of their own and finish their work."""
    server = make_server(configs.digests()).start()
    groups = {os.getpgid(pid) for pid in server.children().values()}

    assert os.getpgid(server.pid) not in groups
    assert server.stop() == 0
