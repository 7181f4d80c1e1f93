"""The ownership rule with real processes: die or stop at each fault point, four slots, answers that digest every byte.

Each process that is started again strikes again, 1.2 s after its first request: late enough not to be a crash loop.
"""

from __future__ import annotations

from collections import Counter

import configs
import pytest
from load import DigestLoad
from mapping import map_board
from places import StartServer
from raw_client import statistics
from server import Server

from schemas.words import STALE

POINTS = ("after_take", "between_check_and_write", "after_write", "after_send")
STAGES = ("decode", "preprocess", "postprocess")
FAULT_MS = 1200
SLOTS = 4
MAX_GIVEN_UP = 0.005


def faults_by_stage(server: Server) -> Counter[str]:
    """Return how often each stage was struck: after a stop the supervisor kills it, so every fault is a death."""
    return Counter(name.split(".")[1] for name in server.deaths())


def suffer(make_server: StartServer, *, point: str, action: str, faults: int) -> None:
    """Run load until each stage was struck *faults* times; every request must get its one right answer.

    A request is given up after six deaths that were not its fault. Faults come in chains here, because those that are due strike
    the first batch after a restart, so a few in ten thousand meet that many.
    """
    fault = {"SLOTLINE_FAULT": f"{point}:{action}:{FAULT_MS}ms"}
    server = make_server(configs.digests(slots=SLOTS, replicas="{ preprocess = 2 }"), environment=fault).start()
    load = DigestLoad(server.endpoint, seed=faults)
    load.run_until(lambda: min(faults_by_stage(server)[stage] for stage in STAGES) >= faults, timeout_s=30 + 20 * faults)

    load.client.finish()
    load.client.assert_nothing_amiss()
    tally = load.client.tally
    assert set(tally.errors) <= {"STAGE_DIED"}
    assert tally.errors.total() <= MAX_GIVEN_UP * load.sent, tally.failures
    check_slots(server, received=load.sent, given_up=tally.errors.total())
    assert server.stop() == 0
    load.close()
    print(f"{point} {action}: {tally.ok} of {load.sent} requests, faults {dict(faults_by_stage(server))}")


def check_slots(server: Server, *, received: int, given_up: int = 0) -> None:
    """Fail unless the ledger balances and every slot is free."""
    stats = statistics(server.control)
    assert stats["ledger.balanced"]
    assert (stats["ledger.received"], stats["ledger.answered"]) == (received, received - given_up)
    assert (stats["ledger.failed"], stats["ledger.in_flight"]) == (given_up, 0)
    assert (stats["lane.digests.slots_free"], stats["lane.digests.slots_condemned"]) == (SLOTS, 0)


@pytest.mark.parametrize("point", POINTS)
def test_each_request_is_answered_once_though_its_processes_are_killed(make_server: StartServer, point: str) -> None:
    """Killed at each point of the worker's loop: 20 times and more, since one of the three stages has two replicas."""
    suffer(make_server, point=point, action="kill", faults=5)


@pytest.mark.parametrize("point", POINTS)
def test_each_request_is_answered_once_though_its_processes_are_stopped(make_server: StartServer, point: str) -> None:
    """A stopped process is killed and replaced; it cannot write into a slot's next life."""
    suffer(make_server, point=point, action="stop", faults=2)


@pytest.mark.long
@pytest.mark.parametrize("action", ["kill", "stop"])
@pytest.mark.parametrize("point", POINTS)
def test_the_rule_holds_for_long(make_server: StartServer, point: str, action: str) -> None:
    """Twenty faults of each stage at each point."""
    suffer(make_server, point=point, action=action, faults=20)


def outlive(make_server: StartServer, *, late_hops: int) -> None:
    """Let givers die after the send while one taker always stalls between its check and its first write.

    The other replica of the taker's stage is quick: were a slot given away too early, its next life would be there when the late
    one writes.
    """
    faults = f"between_check_and_write:stall:1:digests.postprocess.0,after_send:kill_late:{FAULT_MS}ms:digests.preprocess"
    config = configs.digests(slots=SLOTS, replicas="{ preprocess = 2, postprocess = 2 }", linger_ms=10)
    server = make_server(config, environment={"SLOTLINE_FAULT": faults}).start()
    load = DigestLoad(server.endpoint, seed=1, outstanding=2 * SLOTS)
    load.run_until(lambda: statistics(server.control)["ledger.late_hops"] >= late_hops, timeout_s=60 + 10 * late_hops)

    load.finish()
    check_slots(server, received=load.sent)
    assert map_board(server).columns[:, STALE].sum() > 0, "no hop of an earlier life was ever refused"
    assert server.stop() == 0
    load.close()


def test_a_slot_waits_for_a_live_process_that_may_still_touch_it(make_server: StartServer) -> None:
    """A slot's next life begins only when the taker has let go. What it still sends of the old one counts for nothing, and hops
    of the old one that it had not taken yet it refuses.
    """
    outlive(make_server, late_hops=4)


@pytest.mark.long
def test_a_slot_waits_each_time(make_server: StartServer) -> None:
    """The same a hundred times."""
    outlive(make_server, late_hops=100)
