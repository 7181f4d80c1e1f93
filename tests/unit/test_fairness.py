"""Who waits how long behind whom, with the whole core: a lane that is full, its window, and clients of different greed."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from builders import Bench, make_bench

from broker.life import Client, Request


class Stage:
    """A stage that finishes requests in the order in which they were dispatched, one at a time."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.inside: deque[Request] = deque()

    def serve(self) -> Request:
        """Dispatch what may go, finish one request, and return it."""
        self.inside.extend(self.bench.dispatch())
        request = self.inside.popleft()
        assert self.bench.come_back(request) is request
        self.bench.core.ledger.ended(0)
        self.bench.core.finish(request)
        return request


@pytest.mark.parametrize("window", [2, 7, 64])
def test_a_first_request_waits_for_at_most_a_window_of_services(window: int) -> None:
    """However many wait before it: of those with less priority no other is dispatched once it has come."""
    bench = make_bench(slots=64, max_in_flight=10_000, more="backlog = 1000")
    stage = Stage(bench)
    for number in range(500):
        bench.admit(number)
    bench.lane.window.size = window
    for _ in range(20):
        stage.serve()

    urgent = bench.admit(999, client=Client(b"urgent"), priority=1)
    services = 1
    while stage.serve() is not urgent:
        services += 1
    assert services <= window + 1


def test_a_client_with_ten_times_the_rate_gets_its_fair_share() -> None:
    """At most a tenth more than each of the others, while all are backlogged."""
    bench = make_bench(slots=16, max_in_flight=100_000, more="backlog = 10_000")
    stage = Stage(bench)
    bench.lane.window.size = 8
    clients = [Client(bytes([number])) for number in range(5)]
    served, number = Counter[bytes](), 0
    for _ in range(400):
        for client in clients:
            for _ in range(10 if client is clients[0] else 1):
                number += 1
                bench.admit(number, client=client)
        # Two of the fourteen that come are served, so that all are always backlogged.
        for _ in range(2):
            served[stage.serve().client.identity] += 1

    fair = 800 / len(clients)
    assert max(served.values()) <= 1.1 * fair
    assert min(served.values()) >= 0.9 * fair
    assert bench.balanced()


def test_ids_that_share_digits_never_touch_each_other() -> None:
    """A cancel ends the one request with exactly this id, of this client."""
    bench = make_bench(is_served=False, max_in_flight=1000, more="backlog = 1000")
    ids = [1, 10, 11, 100, 101, 110, 111, 1 << 32 | 1, 1 << 63 | 1]
    other = Client(b"other")
    for request_id in ids:
        bench.admit(request_id)
        bench.admit(request_id, client=other)

    for at, request_id in enumerate(ids):
        ended = bench.core.cancel(bench.client, request_id)
        assert ended is not None
        assert (ended.request.request_id, ended.request.client) == (request_id, bench.client)
        assert list(bench.client.in_flight) == ids[at + 1 :]
    assert list(other.in_flight) == ids
