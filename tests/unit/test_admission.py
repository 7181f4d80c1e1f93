"""The backlog gives out in one order: level, then clients in turn by rows, then deadline, then arrival; and is bounded."""

from __future__ import annotations

from collections import Counter
from itertools import count

from builders import make_request
from hypothesis import given
from hypothesis import strategies as st

from broker import life
from broker.admission import DEFAULT_LEVEL, SWEEP_ABOVE, Backlog
from broker.life import Client, Request

_tickets = count(1)


def make_backlog(*, max_requests: int = 100_000, max_bytes: int = 1 << 30, quantum_rows: int = 8) -> Backlog:
    """Return a backlog with bounds that a test is not about."""
    return Backlog(max_requests=max_requests, max_bytes=max_bytes, quantum_rows=quantum_rows)


def push(backlog: Backlog, client: Client, number: int = 0, **values: int) -> Request:
    """Put in the request *number* of *client*."""
    request = make_request(client, number, None, ticket=next(_tickets), **values)
    backlog.push(request)
    return request


def pop(backlog: Backlog) -> Request:
    """Take out what is next and let it leave its state, as the core does."""
    request = backlog.pop()
    assert request is not None
    request.step(life.DISPATCH)
    return request


def end(backlog: Backlog, request: Request) -> None:
    """End a request that waits."""
    request.step(life.CANCEL)
    backlog.discard(request)


def test_a_higher_level_goes_first_whenever_it_came() -> None:
    """1 is the highest; 0 is the default level, which lies at 8."""
    backlog, client = make_backlog(), Client(b"")
    for number, priority in enumerate((255, 0, 1, DEFAULT_LEVEL, 9)):
        push(backlog, client, number, priority=priority)

    assert [pop(backlog).request_id for _ in range(5)] == [2, 1, 3, 4, 0]
    assert backlog.pop() is None


def test_inside_a_client_the_earliest_deadline_goes_first_then_arrival() -> None:
    """Whatever the order in which they came."""
    backlog, client = make_backlog(), Client(b"")
    for number, deadline_ns in enumerate((30, 10, 20, 10)):
        push(backlog, client, number, deadline_ns=deadline_ns)

    assert [pop(backlog).request_id for _ in range(4)] == [1, 3, 2, 0]


def test_a_client_with_ten_times_the_rate_gets_half() -> None:
    """While both are backlogged; its deadlines may be earlier, they only order its own."""
    backlog, greedy, modest = make_backlog(), Client(b"greedy"), Client(b"modest")
    for number in range(1_000):
        push(backlog, greedy, number, deadline_ns=1)
        if number % 10 == 0:
            push(backlog, modest, number)

    served = Counter(pop(backlog).client.identity for _ in range(160))
    assert served == {b"greedy": 80, b"modest": 80}


def test_shares_are_counted_in_rows() -> None:
    """Large requests do not buy more than small ones."""
    backlog, large, small = make_backlog(quantum_rows=32), Client(b"large"), Client(b"small")
    for number in range(500):
        push(backlog, large, number, rows=32)
        push(backlog, small, number)

    rows = Counter[bytes]()
    for _ in range(330):
        request = pop(backlog)
        rows[request.client.identity] += request.rows
    assert abs(rows[b"large"] - rows[b"small"]) <= 64


def test_a_client_that_comes_new_is_served_in_the_next_round() -> None:
    """One that sends now and then waits for at most one quantum of each of the others."""
    backlog, rare = make_backlog(), Client(b"rare")
    busy = [Client(bytes([index])) for index in range(4)]
    for client in busy:
        for number in range(100):
            push(backlog, client, number)
    for _ in range(50):
        pop(backlog)
    push(backlog, rare)

    served = [pop(backlog).client for _ in range(4 * 8 + 1)]
    assert rare in served


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 8)), min_size=50, max_size=200))
def test_nothing_starves_inside_a_level(sent: list[tuple[int, int]]) -> None:
    """While clients are backlogged, none is ahead of another by more than two quanta and a request."""
    backlog, clients = make_backlog(), [Client(bytes([index])) for index in range(5)]
    waiting, rows = Counter[bytes](), Counter[bytes]()
    for number, (index, size) in enumerate(sent):
        push(backlog, clients[index], number, rows=size)
        waiting[clients[index].identity] += 1
    while all(waiting[identity] for identity in waiting):
        request = pop(backlog)
        rows[request.client.identity] += request.rows
        waiting[request.client.identity] -= 1

    assert max(rows.values()) - min(rows[identity] for identity in waiting) <= 2 * 8 + 8


def test_a_client_alone_gets_everything() -> None:
    """There is nobody to share with."""
    backlog, client = make_backlog(quantum_rows=1), Client(b"")
    for number in range(100):
        push(backlog, client, number)

    assert [pop(backlog).request_id for _ in range(100)] == list(range(100))


def test_it_is_bounded_by_count() -> None:
    """What leaves makes room."""
    backlog, client = make_backlog(max_requests=2), Client(b"")
    push(backlog, client)
    assert backlog.has_room(8)
    push(backlog, client)
    assert not backlog.has_room(8)
    pop(backlog)
    assert backlog.has_room(8)


def test_it_is_bounded_by_bytes() -> None:
    """Exactly full is not over."""
    backlog, client = make_backlog(max_bytes=20), Client(b"")
    waiting = push(backlog, client)

    assert (backlog.has_room(12), backlog.has_room(13)) == (True, False)
    end(backlog, waiting)
    assert (backlog.bytes, backlog.has_room(20)) == (0, True)


def test_what_ended_while_it_waited_is_skipped() -> None:
    """Its entry is not given out, and not counted."""
    backlog, client = make_backlog(), Client(b"")
    first, second = push(backlog, client), push(backlog, client)
    end(backlog, first)

    assert (backlog.count, backlog.waiting()) == (1, [second])
    assert pop(backlog) is second
    assert backlog.pop() is None


def entries(backlog: Backlog) -> int:
    """Return how many entries and clients the backlog keeps."""
    levels = backlog._levels.values()
    return sum(len(waiting.heap) + 1 for level in levels for waiting in level.ring) + sum(len(lv.by_client) for lv in levels)


def test_dead_entries_are_swept() -> None:
    """A lane that gives nothing out, and clients that come, give up and go, do not make it grow."""
    backlog = make_backlog()
    kept = push(backlog, Client(b"kept"))
    for number in range(5_000):
        end(backlog, push(backlog, Client(number.to_bytes(2, "little"))))

    assert entries(backlog) <= 3 * (SWEEP_ABOVE + 4)
    assert (backlog.count, pop(backlog), backlog.pop()) == (1, kept, None)


def test_a_client_that_was_swept_comes_again() -> None:
    """Nothing remembers that it had been there."""
    backlog, client, other = make_backlog(), Client(b"one"), Client(b"other")
    push(backlog, other)
    for _ in range(2 * SWEEP_ABOVE):
        end(backlog, push(backlog, client))
    push(backlog, client, 7)

    assert {pop(backlog).client.identity for _ in range(2)} == {b"one", b"other"}


@given(st.lists(st.tuples(st.sampled_from(["push", "pop", "end"]), st.integers(0, 3), st.integers(0, 3)), max_size=120))
def test_counts_are_those_of_what_waits(steps: list[tuple[str, int, int]]) -> None:
    """Whatever comes, leaves and ends."""
    backlog, clients = make_backlog(), [Client(bytes([index])) for index in range(4)]
    waiting: list[Request] = []
    for number, (step, index, priority) in enumerate(steps):
        if step == "push":
            waiting.append(push(backlog, clients[index], number, priority=priority, payload_bytes=number))
        elif waiting and step == "pop":
            waiting.remove(pop(backlog))
        elif waiting:
            end(backlog, waiting.pop(index % len(waiting)))
        assert (backlog.count, backlog.bytes) == (len(waiting), sum(request.payload_bytes for request in waiting))
        assert {id(request) for request in backlog.waiting()} == {id(request) for request in waiting}
