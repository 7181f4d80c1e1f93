"""What the core decides: who is admitted, who goes to the stages, what a hop that comes back means, how requests end."""

from __future__ import annotations

import pytest
from builders import FIRST, SECOND, Bench, codes, make_bench, make_request

from broker import life
from broker.core import MAX_NO_REPLICA, Ended
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
    assert 750 <= min(hints)
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


def test_a_deadline_ends_what_waits_and_orphans_what_runs() -> None:
    """The slot of what runs stays taken until its hop returns."""
    bench = make_bench(slots=1)
    running, queued = bench.held(1), bench.admit(2)

    assert bench.core.expired(999_999_999) == []
    assert codes(bench.core.expired(1_000_000_000)) == {1: "DEADLINE_EXCEEDED", 2: "DEADLINE_EXCEEDED"}
    assert (running.state, queued.state) == (life.ORPHAN, life.DONE)
    assert (bench.lane.slots.free_count, bench.core.in_flight, bench.client.orphans) == (0, 0, 1)
    assert bench.come_back(running) is None
    assert (bench.lane.slots.free_count, bench.client.orphans) == (1, 0)


def test_the_earliest_deadline_is_known_for_waiting() -> None:
    """None when nothing is there."""
    bench = make_bench()
    assert bench.core.next_deadline_ns() is None
    bench.admit(1, deadline_ns=7)
    bench.admit(2, deadline_ns=5)

    assert bench.core.next_deadline_ns() == 5


def test_deadlines_of_answered_requests_do_not_pile_up() -> None:
    """Long budgets and short runs must not grow the heap without end."""
    bench = make_bench(max_in_flight=10_000)
    for request_id in range(5_000):
        bench.admit(request_id, deadline_ns=1 << 62)
        bench.core.cancel(bench.client, request_id)
        bench.core.expired(0)

    assert len(bench.core._deadlines) <= 1_025


def test_cancel_ends_exactly_one_request() -> None:
    """An id that is not in flight is nobody's."""
    bench = make_bench()
    bench.held(1)
    bench.held(2)

    ended = bench.core.cancel(bench.client, 1)
    assert ended is not None
    assert codes([ended]) == {1: "CANCELLED"}
    assert bench.core.cancel(bench.client, 1) is None
    assert list(bench.client.in_flight) == [2]


def test_a_client_that_is_gone_loses_everything_and_keeps_its_slots_until_they_return() -> None:
    """Nobody is answered, and the ledger still balances."""
    bench = make_bench(slots=1)
    running = bench.held(1)
    bench.admit(2)

    assert bench.core.gone(bench.client) == 2
    assert (running.state, bench.core.in_flight, bench.core.ledger.undeliverable) == (life.ORPHAN, 0, 2)
    assert bench.balanced()
    assert bench.come_back(running) is None
    assert bench.lane.slots.free_count == 1


def test_a_client_found_gone_by_its_very_answer_is_forgotten_without_that_request() -> None:
    """The send that fails lies between complete and finish; who sends counts this one."""
    bench = make_bench()
    answered, other = bench.held(1), bench.held(2)
    bench.come_back(answered)

    assert bench.core.gone(bench.client) == 1
    bench.core.ledger.undeliverable += 1
    bench.core.finish(answered)
    assert other.state == life.ORPHAN
    assert (bench.client.in_flight, bench.balanced()) == ({}, True)


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


def test_a_lane_that_cannot_start_answers_what_waits() -> None:
    """In the backlog and with a slot; what still runs may come back."""
    bench = make_bench(slots=2)
    running, waiting = bench.held(1), bench.held(2)
    bench.come_back(waiting, kind=HopKind.NO_REPLICA, stage=1)
    bench.admit(3)

    assert codes(bench.core.make_unavailable(bench.lane, "it does not start")) == {
        2: "MODEL_UNAVAILABLE",
        3: "MODEL_UNAVAILABLE",
    }
    assert running.state == life.HELD


def test_what_comes_to_wait_later_in_such_a_lane_is_answered_too() -> None:
    """For example when the last process died and its slots fell quiet."""
    bench = make_bench()
    request = bench.held(1)
    bench.core.make_unavailable(bench.lane, "it does not start")
    bench.come_back(request, kind=HopKind.NO_REPLICA, stage=1)

    assert codes(bench.core.refuse_stuck()) == {1: "MODEL_UNAVAILABLE"}
    assert bench.core.refuse_stuck() == []


@pytest.mark.parametrize("where", ["queued", "waiting", "held", "condemned"])
def test_the_end_of_draining_answers_every_live_request(where: str) -> None:
    """Wherever it is."""
    bench = make_bench(is_served=where != "queued")
    request = bench.admit(1)
    bench.dispatch()
    if where == "waiting":
        bench.come_back(request, kind=HopKind.NO_REPLICA, stage=1)
    if where == "condemned":
        bench.arena.held[SECOND & 0xFF, request.slot] = 1
        bench.die(FIRST)

    assert life.STATE_NAMES[request.state].lower() == where
    assert codes(bench.core.drain_rest()) == {1: "DRAINING"}
    assert (bench.core.in_flight, bench.core.drain_rest()) == (0, [])


def test_an_unread_ledger_is_an_alarm_when_a_final_is_lost() -> None:
    """A request that leaves without a final makes the equation fail; in flight is counted, not computed."""
    bench = make_bench()
    queued, held = bench.admit(1), bench.held(2)
    assert bench.balanced()

    bench.lane.slots.free(held.slot)
    assert not bench.balanced()

    bench.core.ledger.ended(Code.INTERNAL)
    assert bench.balanced()
    bench.lane.backlog.discard(queued)
    assert not bench.balanced()


def test_a_final_too_many_is_an_alarm_as_well() -> None:
    """Two answers to one request."""
    bench = make_bench()
    bench.held(1)
    bench.core.ledger.ended(0)

    assert not bench.balanced()


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
