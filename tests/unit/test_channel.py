"""The line between broker and supervisor, both ends in one process: nothing waits, nothing is lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from broker.channel import Channel

MANY = 5000


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Two connected ends."""
    pair = [Channel(end.detach()) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)]
    yield pair[0], pair[1]
    for end in pair:
        end.close()


def test_events_arrive_in_order_with_their_values(ends: tuple[Channel, Channel]) -> None:
    """All that is there at once."""
    ours, theirs = ends
    ours.send("start", process=1, incarnation=257)
    ours.send("kill", incarnation=257, reason="it hangs")

    assert theirs.receive() == [
        {"event": "start", "process": 1, "incarnation": 257},
        {"event": "kill", "incarnation": 257, "reason": "it hangs"},
    ]
    assert theirs.receive() == []


def test_a_closed_line_is_told_by_receive_alone(ends: tuple[Channel, Channel]) -> None:
    """After what had been sent before; sending into it does no harm."""
    ours, theirs = ends
    theirs.send("refused", reason="no")
    theirs.close()
    ours.send("terminate")

    assert ours.receive() == [{"event": "refused", "reason": "no"}]
    assert ours.receive() is None


def test_an_end_that_does_not_read_gets_everything_later(ends: tuple[Channel, Channel]) -> None:
    """A full line holds nobody up; what did not fit follows."""
    ours, theirs = ends
    for number in range(MANY):
        ours.send("up", incarnation=number)

    got: list[int] = []
    while len(got) < MANY:
        got += [event["incarnation"] for event in theirs.receive() or ()]
        assert ours.receive() == []

    assert got == list(range(MANY))


def test_what_is_still_to_be_said_is_not_said_twice(ends: tuple[Channel, Channel]) -> None:
    """The broker repeats its wish to have a process killed until that is dead."""
    ours, theirs = ends
    for _ in range(MANY):
        ours.send("kill", incarnation=257, reason="it hangs")

    got = 0
    while (events := theirs.receive()) or got == 0:
        got += len(events or ())
        ours.receive()

    assert 1 <= got < MANY
