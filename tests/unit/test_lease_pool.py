"""Which region is whose, and when a frame is free: the pool's rules, without sockets and memory."""

from __future__ import annotations

from typing import Any

import pytest
from builders import FIRST, SECOND, make_bench, make_request
from lease_rig import lend, make_pool, ref

from broker import life
from broker.leases import Held, LeasePool, Wish
from broker.life import Client, Request
from schemas.status import Code, Flag, RequestError
from schemas.wire_tensors import Lease

MINE, OTHER = Client(b"mine"), Client(b"other")


def refusal(pool: LeasePool, client: Client, lease: Lease, *, is_reply: bool = False) -> str:
    """Return the text with which a frame is refused."""
    with pytest.raises(RequestError) as caught:
        pool.find(client, Wish("image", lease, is_reply))
    assert (caught.value.code, caught.value.field) == (Code.BAD_LEASE, "image")
    return caught.value.message


def using(pool: LeasePool, client: Client, lease: Lease, *, is_reply: bool = False) -> Request:
    """Return a request that was accepted and uses a frame."""
    request = make_request(client, 1, leases=(pool.find(client, Wish("image", lease, is_reply)),))
    pool.hold(request)
    return request


def clean_all(pool: LeasePool) -> None:
    """Clean what is dirty."""
    while pool.dirty is not None:
        pool.cleaned()


def test_a_region_is_lent_to_one_at_a_time() -> None:
    """The last one finds none."""
    pool = make_pool(2)
    first, second = lend(pool, MINE), lend(pool, OTHER)

    assert {first.region, second.region} == {0, 1}
    assert pool.lend(MINE) is None
    assert (MINE.leases, OTHER.leases) == (1, 1)


def test_each_lease_of_a_region_has_a_generation_of_its_own() -> None:
    """It wraps at 32 bits."""
    pool = LeasePool(make_pool().form, [0xFFFFFFFE])
    generations = []
    for _ in range(3):
        grant = lend(pool, Client(b""))
        generations.append(grant.generation)
        pool.left(grant)
        clean_all(pool)

    assert generations == [0xFFFFFFFF, 0, 1]


def test_only_its_own_client_finds_a_region() -> None:
    """Another is told the same as of a region that does not exist, or that is free."""
    pool = make_pool(2)
    grant = lend(pool, MINE)

    assert pool.find(MINE, Wish("image", ref(grant), is_reply=False)) == Held(grant, 0, False)
    for lease in (ref(grant), Lease(1, 100, 0, 1), Lease(7, 100, 0, 1)):
        assert refusal(pool, OTHER, lease) == f"image: expected a region leased to this connection, got region {lease.region}"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"generation": 100}, "expected generation 101 of region 0, got 100"),
        ({"frame": 3}, "expected frame 0 to 2, got 3"),
        ({"nbytes": 5001}, "expected at most 5000 bytes (leases.frame_bytes), got 5001"),
    ],
)
def test_a_lease_that_is_none_is_refused_by_what_is_wrong(change: dict[str, Any], expected: str) -> None:
    """A stale generation, a frame or a size that there is not."""
    pool = make_pool(1)
    grant = lend(pool, MINE)

    assert refusal(pool, MINE, ref(grant)._replace(**change)).endswith(expected)


def test_a_frame_may_be_read_by_several_and_written_for_one() -> None:
    """A reply's frame is nobody else's, neither before nor meanwhile."""
    pool = make_pool(1)
    grant = lend(pool, MINE)
    reading, also = using(pool, MINE, ref(grant)), using(pool, MINE, ref(grant))

    assert "no other request uses" in refusal(pool, MINE, ref(grant), is_reply=True)
    for request in (reading, also):
        request.state = life.DONE
        assert pool.settle(request) == Flag.RELEASED
    answering = using(pool, MINE, ref(grant), is_reply=True)
    assert "no reply is to be written to" in refusal(pool, MINE, ref(grant))
    assert "no other request uses" in refusal(pool, MINE, ref(grant), is_reply=True)
    using(pool, MINE, ref(grant, frame=1))
    answering.state = life.DONE
    assert pool.settle(answering) == Flag.RELEASED
    using(pool, MINE, ref(grant))


def test_an_ended_lease_is_found_no_more() -> None:
    """Also while its region is still in use."""
    pool = make_pool(1)
    grant = lend(pool, MINE)
    using(pool, MINE, ref(grant))
    leases = MINE.leases
    pool.end(grant)
    pool.end(grant)

    assert "has not ended" in refusal(pool, MINE, ref(grant))
    assert MINE.leases == leases - 1


@pytest.mark.parametrize("order", [("left", "let go"), ("let go", "left")])
def test_a_region_is_lent_again_when_it_is_left_unused_and_clean(order: tuple[str, str]) -> None:
    """Whichever comes first."""
    pool = make_pool(1)
    grant = lend(pool, MINE)
    request = using(pool, MINE, ref(grant))
    request.state = life.DONE
    pool.end(grant)
    for event in order:
        assert pool.dirty is None
        assert pool.lend(OTHER) is None
        if event == "left":
            pool.left(grant)
        else:
            pool.settle(request)
    assert pool.dirty == 0
    assert pool.lend(OTHER) is None
    pool.cleaned()

    assert lend(pool, OTHER).generation == grant.generation + 1


def test_what_came_back_first_is_lent_first() -> None:
    """So that each region rests as long as it can."""
    pool = make_pool(3)
    grants = [lend(pool, MINE) for _ in range(3)]
    for grant in (grants[1], grants[2], grants[0]):
        pool.left(grant)
        clean_all(pool)

    assert [lend(pool, MINE).region for _ in range(3)] == [1, 2, 0]


def test_leaving_twice_gives_a_region_back_once() -> None:
    """A goodbye, and then the end of the connection."""
    pool = make_pool(1)
    grant = lend(pool, MINE)
    pool.left(grant)
    pool.left(grant)
    pool.cleaned()

    assert pool.dirty is None
    assert pool.stats()["free"] == 1


def test_the_counts_are_those_of_the_regions() -> None:
    """Lent, ended, free and being cleaned make up all."""
    pool = make_pool(4)
    first, second, third = (lend(pool, MINE) for _ in range(3))
    using(pool, MINE, ref(first))
    using(pool, MINE, ref(first, frame=1))
    pool.end(second)
    pool.left(third)

    counts = pool.stats()
    assert [counts[name] for name in ("count", "lent", "ended", "cleaning", "free")] == [4, 1, 1, 1, 1]
    assert (counts["frames_in_use"], counts["bytes"], counts["lent_bytes"]) == (2, 4 * 3 * 8192, 2 * 3 * 8192)


# --- together with the life of a request ---------------------------------------------------------------------------------------


def leasing_bench(slots: int = 4) -> tuple[Any, Any]:
    """Return a bench whose client has a lease, and the lease."""
    bench = make_bench(slots=slots)
    bench.core.leases = bench.core.endings._leases = pool = make_pool(1)
    return bench, lend(pool, bench.client)


def held(bench: Any, grant: Any, frame: int = 0) -> tuple[Held, ...]:
    """Return what a request names."""
    return (bench.core.leases.find(bench.client, Wish("image", ref(grant, frame), is_reply=False)),)


def test_the_final_answer_releases() -> None:
    """It says so by its flag; nothing is told later."""
    bench, grant = leasing_bench()
    request = bench.held(1, leases=held(bench, grant))
    assert bench.core.leases.settle(request) == 0
    assert bench.come_back(request) is request
    assert grant.uses.total() == 1

    assert bench.core.leases.settle(request) == Flag.RELEASED
    bench.core.finish(request)
    assert (grant.uses.total(), bench.core.leases.released) == (0, [])


def test_an_answer_before_its_time_releases_when_the_hop_is_back() -> None:
    """A deadline: the stage still reads the frame."""
    bench, grant = leasing_bench()
    request = bench.held(1, leases=held(bench, grant))
    (ended,) = bench.core.expired(1_000_000_000)
    assert bench.core.leases.settle(ended.request) == 0
    assert (grant.uses.total(), bench.core.leases.released) == (1, [])

    bench.come_back(request)
    assert (grant.uses.total(), bench.core.leases.released) == (0, [request])


def test_what_waits_in_the_backlog_releases_with_its_error() -> None:
    """No stage has seen it."""
    bench, grant = leasing_bench()
    bench.admit(1, leases=held(bench, grant))
    ended = bench.core.cancel(bench.client, 1)

    assert bench.core.leases.settle(ended.request) == Flag.RELEASED
    assert grant.uses.total() == 0


def test_a_death_does_not_release_until_the_slot_is_quiet() -> None:
    """One that may run again keeps its frame; one that was answered meanwhile lets it go when nobody can read it."""
    bench, grant = leasing_bench()
    again = bench.held(1, leases=held(bench, grant))
    late = bench.held(2, leases=held(bench, grant, 1))
    bench.die(FIRST)
    bench.core.cancel(bench.client, 2)
    assert bench.core.leases.settle(late) == 0
    bench.let_go(late.slot, SECOND)
    bench.core.settle()

    assert (again.state, late.state) == (life.WAITING, life.DONE)
    assert (grant.uses, bench.core.leases.released) == ({0: 1}, [late])


def test_a_client_that_is_gone_lets_go_of_what_waited_at_once() -> None:
    """And of what runs when it comes back."""
    bench, grant = leasing_bench(slots=1)
    running = bench.held(1, leases=held(bench, grant))
    bench.admit(2, leases=held(bench, grant, 1))
    bench.core.gone(bench.client)
    assert grant.uses == {0: 1}
    bench.come_back(running)

    assert grant.uses.total() == 0


def test_a_request_that_is_not_admitted_holds_nothing() -> None:
    """Busy."""
    bench, grant = leasing_bench()
    bench.core.draining = True
    request = make_request(bench.client, 1, bench.lane, leases=held(bench, grant))

    assert bench.core.admit(request) is not None
    assert grant.uses.total() == 0
