"""Requests of one key: Ordered answers leave as they came, of Latest keys only the newest wait, and every one is answered."""

from __future__ import annotations

import pytest
from builders import FIRST, Bench, codes, make_bench, make_request

from broker import life
from broker.life import Client, Request
from schemas.hop import HopKind
from schemas.status import Code, KeyPolicy

ORDERED = {"key": 7, "policy": int(KeyPolicy.ORDERED)}
LATEST = {"key": 7, "policy": int(KeyPolicy.LATEST_ONLY), "latest_n": 1}


def latest(number: int) -> dict[str, int]:
    """Return what makes a request LatestN."""
    return {"key": 7, "policy": int(KeyPolicy.LATEST_N), "latest_n": number}


def released(bench: Bench) -> list[int]:
    """Answer what was released, as the shell does; return the ids in their order."""
    ids = []
    while bench.core.endings.released:
        one = bench.core.endings.released.popleft()
        ids.append(one.request.request_id)
        bench.core.ledger.ended(one.code)
        bench.core.finish(one.request)
    return ids


def answer(bench: Bench, request: Request) -> list[int]:
    """Have the hop of *request* come back and answer what may leave; return the ids in their order."""
    done = bench.come_back(request)
    if done is None:
        return released(bench)
    assert done is request
    bench.core.ledger.ended(0)
    bench.core.finish(request)
    return [request.request_id, *released(bench)]


def early(bench: Bench) -> dict[int, str]:
    """Answer what ended beside the matter in hand; return the codes."""
    ended = bench.core.endings.take_early()
    for end in ended:
        bench.core.ledger.ended(end.code)
    return dict(codes(ended))


# --- ordered -----------------------------------------------------------------------------------------------------------------


def test_ordered_answers_leave_in_the_order_of_arrival() -> None:
    """What is back before its elder keeps its slot."""
    bench = make_bench(slots=4)
    first, second, third = (bench.held(number, **ORDERED) for number in (1, 2, 3))

    assert answer(bench, third) == []
    assert (third.state, bench.lane.kept, bench.lane.slots.free_count) == (life.KEPT, 1, 1)
    assert answer(bench, first) == [1]
    assert answer(bench, second) == [2, 3]
    assert (bench.lane.slots.free_count, bench.lane.kept, len(bench.lane.lines), bench.balanced()) == (4, 0, 0, True)


def test_an_ordered_error_of_a_stage_waits_too() -> None:
    """It is an answer like others."""
    bench = make_bench()
    first, second = bench.held(1, **ORDERED), bench.held(2, **ORDERED)
    assert bench.come_back(second, code=Code.MODEL_FAILED, stage=2) is None

    assert answer(bench, first)[0] == 1
    assert bench.core.ledger.failed == {Code.MODEL_FAILED: 1}


def test_other_keys_and_other_clients_do_not_wait() -> None:
    """A key belongs to one client."""
    bench = make_bench()
    bench.held(1, **ORDERED)
    other_key = bench.held(2, **{**ORDERED, "key": 8})
    stranger = bench.held(3, **ORDERED, client=Client(b"other"))

    assert answer(bench, other_key) == [2]
    assert answer(bench, stranger) == [3]


def test_a_follower_is_never_dispatched_before_its_elder() -> None:
    """Neither by its deadline nor by its priority: the elder would wait for a slot that the follower keeps."""
    bench = make_bench(slots=1)
    bench.admit(1, **ORDERED, priority=200, deadline_ns=900_000_000)
    bench.admit(2, **ORDERED, priority=1, deadline_ns=100)
    bench.admit(3, **ORDERED, priority=100, deadline_ns=50)

    order = []
    while jobs := bench.dispatch():
        order += [job.request_id for job in jobs]
        answer(bench, jobs[0])
    assert order == [1, 2, 3]


def test_a_line_forgets_what_a_slow_elder_demanded() -> None:
    """Once it has a slot, followers stand where they would."""
    bench = make_bench(slots=2)
    bench.lane.window.size = 1
    bench.admit(1, **ORDERED, priority=200)
    bench.dispatch()
    bench.admit(2, priority=9)
    bench.admit(3, **ORDERED, priority=1)
    bench.lane.window.size = 2

    assert [job.request_id for job in bench.dispatch()] == [3]


@pytest.mark.parametrize("how", ["deadline", "cancel", "death"])
def test_an_elder_that_ends_early_releases_its_followers(how: str) -> None:
    """It is answered at once, before them."""
    bench = make_bench()
    elder = bench.held(1, **ORDERED, deadline_ns=10, idempotent=False)
    follower = bench.held(2, **ORDERED)
    assert answer(bench, follower) == []

    if how == "deadline":
        assert codes(bench.core.expired(10)) == {1: "DEADLINE_EXCEEDED"}
    elif how == "cancel":
        assert bench.core.cancel(bench.client, 1) is not None
    else:
        bench.let_go(elder.slot, FIRST)
        assert codes(bench.die(FIRST)) == {1: "STAGE_DIED"}
    assert released(bench) == [2]


def test_a_kept_answer_ends_at_its_own_deadline() -> None:
    """With its slot free at once: nobody touches it. An elder that is late as well does not release it first."""
    bench = make_bench(slots=3)
    bench.held(1, **ORDERED, deadline_ns=20)
    follower, last = bench.held(2, **ORDERED, deadline_ns=10), bench.held(3, **ORDERED)
    for request in (follower, last):
        assert answer(bench, request) == []

    assert codes(bench.core.expired(20)) == {1: "DEADLINE_EXCEEDED", 2: "DEADLINE_EXCEEDED"}
    assert released(bench) == [3]
    assert (bench.lane.kept, bench.lane.slots.free_count) == (0, 2)


def test_an_elder_that_runs_again_keeps_its_place() -> None:
    """Its followers wait for its second run."""
    bench = make_bench()
    elder, follower = bench.held(1, **ORDERED), bench.held(2, **ORDERED, deadline_ns=2_000_000_000)
    assert bench.come_back(elder, kind=HopKind.NO_REPLICA, stage=1) is None
    assert answer(bench, follower) == []
    assert bench.dispatch() == [elder]
    assert answer(bench, elder) == [1, 2]


def test_kept_slots_do_not_count_against_the_window() -> None:
    """They are not work inside the lane."""
    bench = make_bench(slots=4)
    bench.lane.window.size = 2
    bench.held(1, **ORDERED)
    answer(bench, bench.held(2, **ORDERED))

    bench.admit(3)
    assert [job.request_id for job in bench.dispatch()] == [3]


def test_a_client_that_is_gone_releases_nothing_to_itself() -> None:
    """All of its requests end undeliverable, once each."""
    bench = make_bench()
    bench.held(1, **ORDERED)
    answer(bench, bench.held(2, **ORDERED))
    bench.admit(3, **ORDERED)

    assert bench.core.gone(bench.client) == 3
    assert (released(bench), bench.lane.kept, bench.balanced()) == ([], 0, True)


def test_the_end_of_draining_sends_what_was_kept() -> None:
    """Its result is there; only elders are cut short."""
    bench = make_bench()
    bench.held(1, **ORDERED)
    answer(bench, bench.held(2, **ORDERED))

    assert codes(bench.core.drain_rest()) == {1: "DRAINING"}
    assert released(bench) == [2]


# --- latest ------------------------------------------------------------------------------------------------------------------


def test_a_newer_request_supersedes_what_waits() -> None:
    """Each of them is answered, and what is with the stages goes on."""
    bench = make_bench()
    running = bench.held(1, **LATEST)
    for number in (2, 3, 4):
        bench.admit(number, **LATEST)

    assert early(bench) == {2: "SUPERSEDED", 3: "SUPERSEDED"}
    assert bench.dispatch() == []
    assert answer(bench, running) == [1]
    assert [job.request_id for job in bench.dispatch()] == [4]
    assert (bench.core.ledger.superseded, bench.balanced()) == (2, True)


def test_of_a_latest_key_one_for_each_replica_is_inside() -> None:
    """What waits inside the lane could not be superseded any more."""
    bench = make_bench()
    bench.held(1, **LATEST)
    bench.admit(2, **LATEST)
    bench.admit(3)

    assert [job.request_id for job in bench.dispatch()] == [3]


def test_the_newest_n_wait() -> None:
    """And n of them may be inside at once, so that they can share a batch."""
    bench = make_bench(slots=8, is_served=False)
    for number in range(1, 7):
        bench.admit(number, **latest(3))

    assert early(bench) == {1: "SUPERSEDED", 2: "SUPERSEDED", 3: "SUPERSEDED"}
    bench.lane.replicas = [[FIRST], [FIRST]]
    assert [job.request_id for job in bench.dispatch()] == [4, 5, 6]


def test_an_orphan_of_the_key_is_inside_until_its_hop_is_back() -> None:
    """It still takes the stage's time."""
    bench = make_bench()
    orphan = bench.held(1, **LATEST)
    bench.core.cancel(bench.client, 1)
    bench.admit(2, **LATEST)

    assert bench.dispatch() == []
    assert bench.come_back(orphan) is None
    assert [job.request_id for job in bench.dispatch()] == [2]


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_a_turn_that_ends_goes_to_the_next_of_the_key(how: str) -> None:
    """What had a turn and ended before it was dispatched leaves the turn to another."""
    bench = make_bench(is_served=False)
    bench.lane.lines._replicas = 1
    bench.admit(1, **latest(2), deadline_ns=5)
    bench.admit(2, **LATEST | {"latest_n": 2})
    bench.lane.replicas = [[FIRST], [FIRST]]
    bench.lane.window.size = 1

    assert (bench.core.cancel(bench.client, 1) if how == "cancel" else bench.core.expired(5)) is not None
    assert [job.request_id for job in bench.dispatch()] == [2]


def test_a_newer_request_takes_the_place_of_an_older_one_in_a_full_backlog() -> None:
    """It needs no room of its own."""
    bench = make_bench(more="backlog = 1", is_served=False)
    bench.admit(1, **LATEST)
    bench.admit(2, **LATEST)

    assert early(bench) == {1: "SUPERSEDED"}
    assert bench.lane.backlog.count == 1


def test_what_cannot_be_taken_supersedes_nothing() -> None:
    """Else both would be lost."""
    bench = make_bench(more="backlog = 2\nbacklog_bytes = 65_536", is_served=False)
    bench.admit(1, **LATEST)
    large = make_request(bench.client, 2, bench.lane, **LATEST, payload_bytes=65_537)

    refusal = bench.core.admit(large)
    assert refusal is not None
    assert (refusal.code, early(bench), bench.lane.backlog.count) == (Code.BUSY, {}, 1)


def test_a_thousand_keys_leave_nothing() -> None:
    """A line lives as long as something of it does."""
    bench = make_bench(more="backlog = 1000")
    for number in range(1, 1001):
        policy = ORDERED if number % 2 else LATEST
        answer(bench, bench.held(number, **policy | {"key": number}))

    assert (len(bench.lane.lines), bench.lane.backlog.count, bench.balanced()) == (0, 0, True)
