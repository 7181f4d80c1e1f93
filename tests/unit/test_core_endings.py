"""How requests end early: by deadline, cancel, a client that is gone, a lane that cannot start, the end of draining."""

from __future__ import annotations

import pytest
from builders import FIRST, SECOND, codes, make_bench

from broker import life
from schemas.hop import HopKind
from schemas.status import Code


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

    assert len(bench.core.endings._deadlines) <= 1_025


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
