"""What cannot be finished in time, or is too old, is answered early, and one in 32 is let through so that estimates recover."""

from __future__ import annotations

from builders import Bench, codes, make_bench, make_request

from broker import life
from broker.probes import ONE_IN
from schemas.status import Code

MS = 1_000_000


def measured(run_ns: int, *, more: str = "") -> Bench:
    """Return a core whose lane has taken *run_ns* for each of many runs, and which has let one request through."""
    bench = make_bench(slots=64, max_in_flight=1000, more=more)
    for _ in range(100):
        bench.lane.window.observe(0, run_ns, 1)
    bench.lane.probes.lets(make_request(bench.client, 0))
    return bench


def refusal(bench: Bench, request_id: int, left_ns: int) -> Code:
    """Return the code with which a request with *left_ns* is refused, NONE when it is taken."""
    refused = bench.core.admit(make_request(bench.client, request_id, bench.lane, deadline_ns=left_ns))
    return Code.NONE if refused is None else refused.code


def test_a_budget_below_the_shortest_run_is_refused_at_once() -> None:
    """Its client may do something else in the time that is left."""
    bench = measured(5 * MS)

    assert refusal(bench, 1, 4 * MS) == Code.DEADLINE_EXCEEDED
    assert refusal(bench, 2, 6 * MS) == Code.NONE


def test_the_refusal_says_what_was_left_and_what_it_takes() -> None:
    """In microseconds, like budgets."""
    bench = measured(5 * MS)
    refused = bench.core.admit(make_request(bench.client, 1, bench.lane, deadline_ns=4 * MS))

    assert refused is not None
    assert refused.message == "4000 us are left, and lane echo takes 5000 us at least"


def test_the_whole_path_counts() -> None:
    """All stages together."""
    bench = measured(5 * MS)
    for _ in range(100):
        bench.lane.window.observe(1, 3 * MS, 1)

    assert refusal(bench, 1, 7 * MS) == Code.DEADLINE_EXCEEDED
    assert refusal(bench, 2, 9 * MS) == Code.NONE


def test_nothing_is_refused_by_the_first_runs() -> None:
    """They are slow: caches are cold."""
    bench = make_bench()
    for _ in range(10):
        bench.lane.window.observe(0, 500 * MS, 1)

    assert refusal(bench, 1, MS) == Code.NONE


def test_what_waited_until_too_little_is_left_is_answered_when_its_turn_comes() -> None:
    """And costs no slot."""
    bench = measured(5 * MS)
    request = bench.admit(1, deadline_ns=20 * MS)

    assert bench.dispatch(now_ns=16 * MS) == []
    (ended,) = bench.core.endings.take_early()
    assert codes([ended]) == {1: "DEADLINE_EXCEEDED"}
    assert (request.state, bench.lane.slots.used_count, bench.core.in_flight) == (life.DONE, 0, 0)
    assert bench.core.expired(100 * MS) == []


def test_one_in_32_is_let_through() -> None:
    """At admission and then at its dispatch too."""
    bench = measured(5 * MS)
    taken = [number for number in range(1, 1 + 4 * ONE_IN) if refusal(bench, number, 4 * MS) == Code.NONE]

    assert len(taken) == 4
    assert [request.request_id for request in bench.dispatch(now_ns=0)] == taken[-1:]


def test_the_estimate_recovers_by_what_was_let_through() -> None:
    """One fast run is enough."""
    bench = measured(5 * MS)
    bench.lane.window.observe(0, MS, 1)

    assert refusal(bench, 1, 4 * MS) == Code.NONE


def test_the_estimate_follows_a_lane_that_becomes_slower() -> None:
    """Slowly: one slow run says nothing about the shortest."""
    bench = measured(5 * MS)
    bench.lane.window.observe(0, 50 * MS, 1)
    assert refusal(bench, 1, 6 * MS) == Code.NONE
    for _ in range(200):
        bench.lane.window.observe(0, 50 * MS, 1)
    assert refusal(bench, 2, 40 * MS) == Code.DEADLINE_EXCEEDED


def test_what_is_too_old_is_answered_with_its_age() -> None:
    """Its field is born_us, by which it was judged."""
    bench = make_bench(more="max_age_us = 1000")
    bench.admit(1, born_us=500)
    bench.admit(2, born_us=1_500)
    bench.admit(3)

    assert [request.request_id for request in bench.dispatch(now_ns=2 * MS)] == [2, 3]
    (ended,) = bench.core.endings.take_early()
    assert (ended.code, ended.field) == (Code.DEADLINE_EXCEEDED, "born_us")
    assert ended.message == "1500 us old, lane.echo.max_age_us is 1000"


def test_without_a_limit_age_does_not_matter() -> None:
    """born_us is any number of the client's then."""
    bench = make_bench()
    bench.admit(1, born_us=1)

    assert len(bench.dispatch(now_ns=900 * MS)) == 1
