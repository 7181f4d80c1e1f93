"""A ledger that does not balance, and slots that do not come back, are told once each: they should be impossible."""

from __future__ import annotations

import pytest
from builders import FIRST, Bench, make_bench

from broker.alarms import LOOK_NS, Alarms
from broker.answers import TOP_CLIENTS, Answers
from broker.life import Client
from broker.roster import Roster
from schemas.config import ServerConfig
from schemas.status import Code

SECOND_NS = 1_000_000_000


def make_alarms(bench: Bench) -> Alarms:
    """Return the alarms of a server that is *bench*."""
    return Alarms([bench.lane], Answers(bench.core, ServerConfig(), epoch=1).ledger)


def names(alarms: Alarms, looks: range) -> list[str]:
    """Return the alarms given in some looks, by their number."""
    found = []
    for number in looks:
        ledger, overheld = alarms.look(number * LOOK_NS)
        found += ["ledger"] * bool(ledger) + list(overheld)
    return found


def test_a_lost_final_is_told_at_the_second_look_and_once() -> None:
    """With the figures."""
    bench = make_bench()
    lost = bench.held(1)
    alarms = make_alarms(bench)
    assert names(alarms, range(3)) == []

    # It leaves without a final: nobody was answered.
    bench.come_back(lost)
    bench.core.finish(lost)
    assert names(alarms, range(3, 4)) == []
    ledger, _ = alarms.look(4 * LOOK_NS)
    assert (ledger["received"], ledger["in_flight"], ledger["balanced"]) == (1, 0, False)
    assert names(alarms, range(5, 9)) == []


def test_it_is_told_again_when_it_had_balanced() -> None:
    """Another fault is another alarm."""
    bench = make_bench()
    alarms = make_alarms(bench)
    for first_look in (0, 10):
        bench.core.ledger.received += 1
        assert names(alarms, range(first_look, first_look + 4)) == ["ledger"]
        bench.core.ledger.ended(Code.INTERNAL)
        assert names(alarms, range(first_look + 4, first_look + 6)) == []


def test_it_looks_once_a_second() -> None:
    """Counting what is in flight costs a look at each slot."""
    bench = make_bench()
    bench.core.ledger.received += 1
    alarms = make_alarms(bench)

    assert alarms.look(0) == alarms.look(LOOK_NS - 1) == ({}, {})
    assert alarms.look(LOOK_NS) != ({}, {})


def test_a_slot_that_a_living_process_keeps_is_told() -> None:
    """Longer than its own call and those before it may take, two processes of a second each."""
    bench = make_bench()
    kept = bench.held(1, deadline_ns=100 * SECOND_NS)
    alarms = make_alarms(bench)

    assert names(alarms, range(5)) == []
    assert alarms.look(5 * SECOND_NS) == ({}, {"echo": 1})
    assert (bench.lane.overheld, names(alarms, range(6, 9))) == (1, [])
    bench.come_back(kept)
    bench.core.finish(kept)
    bench.core.ledger.ended(0)
    assert (alarms.look(9 * SECOND_NS), bench.lane.overheld) == (({}, {}), 0)


def test_an_orphan_that_does_not_come_back_is_told_too() -> None:
    """Its client has its answer; its slot is gone."""
    bench = make_bench()
    bench.held(1, FIRST)
    bench.core.cancel(bench.client, 1)
    bench.core.ledger.ended(Code.CANCELLED)

    assert names(make_alarms(bench), range(8)) == ["echo"]


@pytest.mark.parametrize("clients", [3, 3 * TOP_CLIENTS])
def test_the_clients_that_sent_most_have_their_own_ledgers(clients: int) -> None:
    """As many as are told of; each says whether it balances."""
    bench, roster = make_bench(), Roster(1024)
    answers = Answers(bench.core, ServerConfig(), epoch=1)
    answers.rosters.append(roster)
    for number in range(1, clients + 1):
        finals = {0: number, int(Code.SUPERSEDED): 2, int(Code.BUSY): 1}
        roster.clients[bytes([number])] = Client(bytes([number]), received=number + 3, finals=finals, name=f"cam.{number}")
    roster.clients[b"silent"] = Client(b"silent")

    stats = answers.stats()
    told = [stats[f"client.{rank}.name"] for rank in range(1, min(clients, TOP_CLIENTS) + 1)]
    assert told == [f"cam.{number}" for number in range(clients, max(0, clients - TOP_CLIENTS), -1)]
    assert f"client.{len(told) + 1}.name" not in stats
    first = {key: stats[f"client.1.{key}"] for key in ("received", "answered", "refused", "failed", "superseded", "balanced")}
    assert first == {
        "received": clients + 3, "answered": clients, "refused": 1, "failed": 0, "superseded": 2, "balanced": True,
    }  # fmt: skip
