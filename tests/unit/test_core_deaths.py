"""What the core makes of deaths: who runs again, who runs alone, who is given up, and when a slot may be used again."""

from __future__ import annotations

from builders import FIRST, SECOND, Bench, codes, make_bench

from broker import life
from broker.life import Request
from broker.suspects import MAX_RETRIES

OTHER = 9 << 8 | 9


def revive(bench: Bench, request: Request, incarnation: int) -> None:
    """Let a condemned request fall quiet and be dispatched to, and taken by, a new *incarnation*."""
    bench.core.settle()
    bench.core.live.add(incarnation)
    bench.lane.replicas[0] = [incarnation]
    assert bench.dispatch() == [request]
    bench.take(request.slot, incarnation)


def test_a_slot_whose_holder_died_runs_again_in_place() -> None:
    """The same slot with the next generation; the input is still there."""
    bench = make_bench(slots=1)
    request = bench.held(1)

    assert bench.die(FIRST) == []
    assert (request.state, bench.lane.slots.generations, request.retries) == (life.CONDEMNED, [1], 1)
    revive(bench, request, OTHER)
    assert (request.state, request.slot, request.stage, request.marks) == (life.HELD, 0, 0, 0)


def test_a_request_on_its_way_from_or_to_the_dead_is_condemned() -> None:
    """Holder names both; either may be the dead one."""
    for giver, taker in ((FIRST, SECOND), (SECOND, FIRST)):
        bench = make_bench()
        request = bench.held(1)
        bench.arena.holder[request.slot] = giver << 32 | taker
        bench.die(FIRST)

        assert request.state == life.CONDEMNED


def test_a_slot_that_others_may_still_touch_waits_for_them() -> None:
    """Until each of them was reaped or showed that it does not hold the slot."""
    bench = make_bench()
    request = bench.held(1)
    bench.take(request.slot, SECOND)
    bench.arena.holder[request.slot] = FIRST << 32 | SECOND
    bench.die(FIRST)

    bench.core.settle()
    assert request.state == life.CONDEMNED
    bench.let_go(request.slot, SECOND)
    bench.core.settle()
    assert request.state == life.WAITING


def test_an_orphan_of_the_dead_is_freed_when_it_falls_quiet() -> None:
    """It was answered; nothing runs again."""
    bench = make_bench()
    request = bench.held(1)
    bench.core.cancel(bench.client, 1)
    bench.die(FIRST)
    assert (request.state, bench.client.orphans) == (life.CONDEMNED_ORPHAN, 1)

    bench.core.settle()
    assert (request.state, bench.client.orphans, bench.lane.slots.free_count) == (life.DONE, 0, 4)


def test_a_condemned_request_still_has_a_deadline() -> None:
    """Its client does not wait for those who hold the slot."""
    bench = make_bench()
    request = bench.held(1)
    bench.take(request.slot, SECOND)
    bench.arena.holder[request.slot] = FIRST << 32 | SECOND
    bench.die(FIRST)

    assert codes(bench.core.expired(1_000_000_000)) == {1: "DEADLINE_EXCEEDED"}
    bench.core.settle()
    assert bench.lane.slots.free_count == 3
    bench.let_go(request.slot, SECOND)
    bench.core.settle()
    assert bench.lane.slots.free_count == 4


def test_a_hop_of_a_condemned_slot_is_late() -> None:
    """Whoever sends it: the slot has begun another generation."""
    bench = make_bench()
    request = bench.held(1)
    life_of = (0, request.ticket)
    bench.die(FIRST)

    assert bench.core.complete(bench.lane, request.slot, life_of, kind=2, stage=3, code=0) is None
    assert (request.state, bench.core.ledger.late_hops) == (life.CONDEMNED, 1)


def test_a_death_in_a_call_marks_its_requests_and_counts_no_retry() -> None:
    """They run once more, each alone; the others of the dead one only count a retry."""
    bench = make_bench()
    running, beside = bench.held(1), bench.held(2)
    bench.die(FIRST, bench.call(FIRST, running))

    assert (running.marks, running.retries, running.lone) == (1, 0, True)
    assert (beside.marks, beside.retries, beside.lone) == (0, 1, False)


def test_a_request_that_killed_twice_is_quarantined() -> None:
    """A killer costs two processes, its batch mates one run each."""
    bench = make_bench()
    killer, mate = bench.held(1), bench.held(2)
    assert bench.die(FIRST, bench.call(FIRST, killer, mate)) == []
    bench.core.settle()
    bench.core.live.add(OTHER)
    bench.lane.replicas[0] = [OTHER]
    for request in bench.dispatch():
        bench.take(request.slot, OTHER)

    assert codes(bench.die(OTHER, bench.call(OTHER, killer))) == {1: "QUARANTINED"}
    assert (mate.state, mate.marks) == (life.CONDEMNED, 1)


def test_a_killer_whose_slot_was_condemned_already_is_marked_too() -> None:
    """Its sender died first; the call is of the generation before the condemnation."""
    bench = make_bench()
    request = bench.held(1)
    call = bench.call(SECOND, request)
    bench.arena.held[SECOND & 0xFF, request.slot] = 1
    bench.arena.holder[request.slot] = FIRST << 32 | SECOND
    bench.die(FIRST)
    request.marks = 1

    assert codes(bench.die(SECOND, call)) == {1: "QUARANTINED"}
    assert request.state == life.CONDEMNED_ORPHAN


def test_a_call_of_an_earlier_life_marks_nobody() -> None:
    """Two generations back is somebody else's request."""
    bench = make_bench()
    request = bench.held(1)
    call = bench.call(SECOND, request)
    bench.lane.slots.generations[request.slot] = 1
    bench.die(SECOND, call)

    assert (request.marks, request.state) == (0, life.HELD)


def test_what_may_not_run_twice_ends_at_once() -> None:
    """Its slot still waits for those who may touch it."""
    bench = make_bench()
    request = bench.held(1, idempotent=False)
    bench.arena.held[SECOND & 0xFF, request.slot] = 1

    assert codes(bench.die(FIRST)) == {1: "STAGE_DIED"}
    bench.core.settle()
    assert (request.state, bench.lane.slots.free_count) == (life.CONDEMNED_ORPHAN, 3)


def test_a_request_whose_holders_keep_dying_is_given_up() -> None:
    """It was in none of their calls, so it is not the killer; but something is wrong."""
    bench = make_bench()
    request = bench.held(1)
    holder = FIRST
    for number in range(MAX_RETRIES):
        assert bench.die(holder) == []
        holder = (20 + number) << 8 | 20
        revive(bench, request, holder)

    assert codes(bench.die(holder)) == {1: "STAGE_DIED"}


def test_a_slot_sent_to_one_that_was_reaped_is_found_at_the_next_tick() -> None:
    """A sender with an old view of the board names it after its reap; no event tells."""
    bench = make_bench()
    request = bench.held(1)
    bench.die(SECOND)
    bench.arena.holder[request.slot] = FIRST << 32 | SECOND

    assert bench.core.condemn_lost() == []
    assert request.state == life.CONDEMNED


def test_a_dead_process_gets_nothing_more() -> None:
    """It leaves every list of replicas when it is reaped."""
    bench = make_bench()
    bench.die(FIRST)
    bench.admit(1)

    assert bench.dispatch() == []
