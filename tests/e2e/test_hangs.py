"""Stages that stop, never return, or die of one request: found, killed, replaced; everybody else is served."""

from __future__ import annotations

import hashlib
import os
import signal
import time

import configs
import pytest
from load import DigestLoad
from places import StartServer
from raw_client import Answer, RawClient, bytes_template, statistics
from server import DEMO, Server, wait_until
from stages_for_tests import ABORT, HANG, SLOW

from schemas.status import Code

MATES = 200


def echoes(answer: Answer, payload: bytes) -> bool:
    """True when the answer's one tensor is what was sent."""
    return list(answer.values()) == [payload]


def client_of(server: Server) -> RawClient:
    """Return a client whose right answers are what it sent."""
    return RawClient(server.endpoint, is_right=echoes)


def send(client: RawClient, lane: str, first: int, number: int = 0) -> int:
    """Send a payload that begins with the byte *first*; return its id."""
    payload = bytes([first]) + number.to_bytes(4, "little") * 8
    return client.send(bytes_template(lane, len(payload)), [payload], payload)


def check_balance(server: Server) -> None:
    """Fail unless the ledger balances and all slots are free."""
    stats = statistics(server.control)
    assert stats["ledger.balanced"]
    assert stats["ledger.in_flight"] == 0
    assert stats["lane.bad.slots_free"] == stats["lane.bad.slots"]


@pytest.mark.parametrize("name", ["digests.decode.0", "digests.postprocess.0"])
def test_a_stopped_stage_is_killed_and_its_work_run_again(make_server: StartServer, name: str) -> None:
    """SIGSTOP under load; a SIGCONT afterwards finds nobody."""
    server = make_server(configs.digests()).start()
    load = DigestLoad(server.endpoint, seed=1)
    load.run_for(0.3)
    pid = server.child(name)
    os.kill(pid, signal.SIGSTOP)
    load.run_until(lambda: server.children().get(name, pid) != pid)

    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    load.finish()
    load.close()
    assert [event["child"] for event in server.events("killed_hanging")] == [name]
    assert server.stop() == 0


def test_a_stopped_broker_is_replaced(make_server: StartServer) -> None:
    """It cannot be asked to go on: its clients get a new epoch."""
    server = make_server(configs.digests()).start()
    epoch = statistics(server.control)["epoch"]
    os.kill(server.child("broker"), signal.SIGSTOP)
    wait_until(lambda: server.events("broker_died"), "the broker's death")
    load = DigestLoad(server.endpoint, seed=1)
    load.run_for(0.5)

    load.finish()
    load.close()
    assert statistics(server.control)["epoch"] != epoch
    assert server.stop() == 0


def test_a_stage_that_never_returns_is_killed_and_the_others_are_served(make_server: StartServer) -> None:
    """Its request may not run twice: STAGE_DIED. Another lane does not notice."""
    server = make_server(configs.misbehaving(idempotent=False)).start()
    client = client_of(server)
    started = time.monotonic()
    hanging = send(client, "bad", HANG)
    for number in range(MATES):
        send(client, "echo", 0, number)
    client.finish()
    took_s = time.monotonic() - started
    later = [send(client, "bad", 0, number) for number in range(MATES)]
    client.finish()

    client.assert_nothing_amiss()
    assert client.code_of(hanging) == Code.STAGE_DIED
    assert (client.tally.ok, client.tally.errors.total()) == (MATES + len(later), 1)
    assert took_s >= 1.0, "killed before its hang limit"
    assert server.deaths() == ["bad.0"]
    assert "in one call for more than 1000 ms" in server.events("killed_hanging")[0]["reason"]
    check_balance(server)
    assert server.stop() == 0
    client.close()


def test_a_request_that_always_hangs_is_quarantined_after_two_kills(make_server: StartServer) -> None:
    """The same with requests that may run twice: the second time alone, then no more."""
    server = make_server(configs.misbehaving(idempotent=True, hang_limit_ms=300)).start()
    client = client_of(server)
    hanging = send(client, "bad", HANG)
    for number in range(MATES):
        send(client, "bad", 0, number)
    client.finish()

    client.assert_nothing_amiss()
    assert client.code_of(hanging) == Code.QUARANTINED
    assert client.tally.ok == MATES
    assert server.deaths() == ["bad.0", "bad.0"]
    check_balance(server)
    assert server.stop() == 0
    client.close()


def test_a_request_that_kills_costs_two_deaths_and_nobody_else_anything(make_server: StartServer) -> None:
    """QUARANTINED with the digest of its input, by which it can be found again; all that ran beside it are answered."""
    server = make_server(configs.misbehaving(idempotent=True)).start()
    client = client_of(server)
    for number in range(MATES):
        send(client, "bad", SLOW if number % 10 == 0 else 0, number)
    killer = send(client, "bad", ABORT, 7)
    for number in range(MATES):
        send(client, "bad", 0, number)
    client.finish()

    client.assert_nothing_amiss()
    assert (client.tally.ok, dict(client.tally.errors)) == (2 * MATES, {"QUARANTINED": 1})
    payload = bytes([ABORT]) + (7).to_bytes(4, "little") * 8
    assert hashlib.blake2b(payload, digest_size=8).hexdigest() in client.tally.failures[killer].message
    assert server.deaths() == ["bad.0", "bad.0"]
    check_balance(server)
    assert server.stop() == 0
    client.close()


def test_a_request_that_kills_and_may_not_run_twice_costs_one_death(make_server: StartServer) -> None:
    """STAGE_DIED at once for it and for what the process had taken; never a second run."""
    server = make_server(configs.misbehaving(idempotent=False)).start()
    client = client_of(server)
    killer = send(client, "bad", ABORT)
    client.finish()
    for number in range(MATES):
        send(client, "bad", 0, number)
    client.finish()

    client.assert_nothing_amiss()
    assert client.code_of(killer) == Code.STAGE_DIED
    assert client.tally.ok == MATES
    assert server.deaths() == ["bad.0"]
    check_balance(server)
    assert server.stop() == 0
    client.close()


@pytest.mark.long
def test_one_killer_among_two_hundred_requests(make_server: StartServer) -> None:
    """Each killer is quarantined after exactly two deaths, all others are answered."""
    server = make_server(configs.misbehaving(idempotent=True)).start()
    client = client_of(server)
    killers = 10
    for _ in range(killers):
        send(client, "bad", ABORT)
        for number in range(MATES):
            send(client, "bad", SLOW if number % 4 == 0 else 0, number)
        client.finish()
        # A process that served for a second did not die of its start.
        time.sleep(1.1)

    client.assert_nothing_amiss()
    assert (client.tally.ok, dict(client.tally.errors)) == (killers * MATES, {"QUARANTINED": killers})
    assert len(server.deaths()) == 2 * killers
    check_balance(server)
    assert server.stop() == 0
    client.close()


@pytest.mark.long
@pytest.mark.parametrize("name", ["qc.decode+preprocess.0", "qc.infer.0", "qc.postprocess.0", "ticks.0"])
def test_a_stopped_process_of_the_demo_is_replaced(make_server: StartServer, name: str) -> None:
    """Also one that has nothing to do."""
    server = make_server(DEMO).start()
    pid = server.child(name)
    os.kill(pid, signal.SIGSTOP)

    wait_until(lambda: server.children().get(name, pid) != pid, f"another {name}")
    assert server.stop() == 0
