"""What the core decides: who is admitted, who goes to the stages, and what a hop that comes back means."""

from __future__ import annotations

import pytest
from builders import FIRST, SECOND, Bench, codes, make_bench, make_request

from broker import life
from broker.core import MAX_NO_REPLICA
from broker.endings import Ended
from broker.life import Client, Request
from schemas.hop import HopKind
from schemas.status import Code

SEVENTH = 7 << 8 | 7


def refused(bench: Bench, **values: object) -> Code:
    """Return the code with which the next request is refused."""
    refusal = bench.core.admit(make_request(bench.client, 99, bench.lane, **values))
    assert refusal is not None
    return refusal.code


def test_what_is_admitted_gets_its_own_ticket() -> None:
    """Clients choose their ids; two may choose the same."""
    bench = make_bench()

    assert len({bench.admit(request_id).ticket for request_id in (1, 2, 3)}) == 3


def test_a_full_backlog_is_busy_with_a_hint() -> None:
    """The hint is a time that is at least a microsecond."""
    bench = make_bench(more="backlog = 2", is_served=False)
    bench.admit(1)
    bench.admit(2)

    refusal = bench.core.admit(make_request(bench.client, 3, bench.lane))
    assert refusal is not None
    assert (refusal.code, refusal.retry_after_us >= 1) == (Code.BUSY, True)
    assert "backlog of lane echo is full: 2 requests, 16 bytes" in refusal.message


def test_hints_spread_so_that_refused_clients_do_not_come_back_together() -> None:
    """By a quarter up and down."""
    bench = make_bench(more="backlog = 1", is_served=False)
    bench.admit(1)

    hints = []
    for _ in range(50):
        refusal = bench.core.admit(make_request(bench.client, 2, bench.lane))
        assert refusal is not None
        hints.append(refusal.retry_after_us)
    assert len(set(hints)) > 25
    assert min(hints) >= 750
    assert max(hints) <= 1_250


def test_a_client_may_have_so_many_in_flight() -> None:
    """The others are not touched by its limit."""
    bench = make_bench(max_in_flight=2)
    bench.admit(1)
    bench.admit(2)

    assert refused(bench) == Code.BUSY
    assert bench.core.admit(make_request(Client(b"other"), 1, bench.lane)) is None


def test_orphans_count_against_their_client() -> None:
    """Else a client that lets everything expire would take all slots."""
    bench = make_bench(max_in_flight=2)
    bench.held(1)
    bench.held(2)
    bench.core.expired(1_000_000_000)

    assert bench.client.orphans == 2
    assert refused(bench) == Code.BUSY


@pytest.mark.parametrize(("state", "code"), [("draining", Code.DRAINING), ("unavailable", Code.MODEL_UNAVAILABLE)])
def test_a_server_that_stops_and_a_lane_that_cannot_start_refuse(state: str, code: Code) -> None:
    """Each by its own code."""
    bench = make_bench()
    bench.core.draining = state == "draining"
    bench.lane.unavailable = "it does not start" if state == "unavailable" else ""

    assert refused(bench) == code


def test_nothing_is_dispatched_before_a_process_is_there() -> None:
    """It waits in the backlog, where its order is decided."""
    bench = make_bench(is_served=False)
    bench.admit(1)

    assert bench.dispatch() == []
    bench.lane.add_replica(bench.lane.plan.cut[0].process, FIRST)
    assert len(bench.dispatch()) == 1


def test_no_more_are_dispatched_than_slots_window_and_limit_allow() -> None:
    """The least of the three."""
    bench = make_bench(slots=4)
    for request_id in range(8):
        bench.admit(request_id)

    assert len(bench.dispatch(limit=1)) == 1
    bench.lane.window.size = 3
    assert len(bench.dispatch()) == 2
    bench.lane.window.size = 100
    assert len(bench.dispatch()) == 1
    assert bench.lane.slots.free_count == 0


def test_a_result_is_answered_from_its_slot_which_is_free_afterwards() -> None:
    """Not before finish: the reply is copied in between."""
    bench = make_bench(slots=1)
    request = bench.held(1)

    assert bench.come_back(request) is request
    assert bench.lane.slots.free_count == 0
    bench.core.ledger.ended(0)
    bench.core.finish(request)
    assert (bench.lane.slots.free_count, bench.client.in_flight, bench.balanced()) == (1, {}, True)


def test_a_hop_of_an_earlier_life_of_the_slot_is_counted_and_dropped() -> None:
    """By its generation, and by its ticket."""
    bench = make_bench()
    request = bench.held(1)

    for life_of in ((1, request.ticket), (0, request.ticket + 1)):
        assert bench.core.complete(bench.lane, request.slot, life_of, kind=HopKind.DONE, stage=3, code=0) is None
    assert bench.core.ledger.late_hops == 2
    assert request.state == life.HELD


def test_a_hop_for_a_slot_that_does_not_exist_is_late() -> None:
    """A process that writes nonsense does not end the broker."""
    bench = make_bench(slots=1)

    assert bench.core.complete(bench.lane, 7, (0, 1), kind=HopKind.DONE, stage=3, code=0) is None
    assert bench.core.ledger.late_hops == 1


def test_what_no_process_serves_waits_with_its_slot_for_that_stage() -> None:
    """And goes there when the board shows one; the stages that ran are not run again."""
    bench = make_bench()
    request = bench.held(1)
    bench.lane.drop_replica(SECOND)

    assert bench.come_back(request, kind=HopKind.NO_REPLICA, stage=1) is None
    assert (request.state, request.stage, bench.dispatch()) == (life.WAITING, 1, [])
    bench.lane.add_replica(bench.lane.plan.cut[1].process, SEVENTH)
    assert bench.dispatch() == [request]
    assert bench.arena.holder[request.slot] == SEVENTH


def test_waiting_for_a_process_ends() -> None:
    """A board that shows one and loses it for ever would keep a request for ever."""
    bench = make_bench()
    request = bench.held(1)
    request.no_replica = MAX_NO_REPLICA

    ended = bench.come_back(request, kind=HopKind.NO_REPLICA, stage=1)
    assert isinstance(ended, Ended)
    assert codes([ended]) == {1: "STAGE_DIED"}
    assert bench.lane.slots.free_count == 4


def test_an_orphan_that_no_process_serves_is_over() -> None:
    """Nobody waits for it."""
    bench = make_bench()
    request = bench.held(1)
    bench.core.cancel(bench.client, 1)

    assert bench.come_back(request, kind=HopKind.NO_REPLICA, stage=1) is None
    assert (bench.lane.slots.free_count, list(bench.lane.waiting)) == (4, [])


def test_batches_are_summed_over_all_columns_and_their_restarts() -> None:
    """Who is dead has counted too, and a restart in the same column counts on."""
    bench = make_bench()
    bench.arena.batches[1, :6] = [2, 1, 0, 0, 0, 9]
    bench.arena.batches[7, :6] = [1, 0, 0, 0, 1, 7]

    assert bench.lane.batches() == ({"full": 3, "no_delay": 1, "delay": 0, "deadline": 0, "alone": 1}, 16 / 5)


def finish(bench: Bench, request: Request) -> None:
    """Answer a request as the shell does."""
    assert bench.come_back(request) is request
    bench.core.ledger.ended(0)
    bench.core.finish(request)


def test_slots_are_used_again() -> None:
    """As often as requests come."""
    bench = make_bench(slots=2)
    for request_id in range(10):
        finish(bench, bench.held(request_id))

    assert (bench.core.ledger.answered, bench.lane.slots.free_count, bench.balanced()) == (10, 2, True)
