"""Many requests: what is packed, how many are in flight, and what comes back in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from client_helpers import TICK, make_session, reply

from clients.calls import Pending
from clients.errors import ConnectionLost, RequestRefused
from clients.many import MAX_BYTES, MAX_IN_FLIGHT, Many
from clients.session import Outgoing, Session
from schemas.messages import Limits
from schemas.wire import MAX_PACKED

NO_LIMITS = Limits()


class Server:
    """Remembers what was sent, and answers when somebody waits."""

    def __init__(self, *, limits: Limits = NO_LIMITS) -> None:
        self.session = make_session(limits=limits)
        self.session._wait = self._answer
        self.messages: list[Sequence[Outgoing]] = []
        self.most_in_flight = 0
        self.most_bytes = 0
        self.many = Many(start=self._start, send=self._send, max_in_flight=limits.max_in_flight, max_bytes=limits.max_payload)

    def run(self, inputs: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Send *inputs* and return what became of them."""
        for one in inputs:
            self.many.add(one)
        return self.many.finish()

    def _start(self, inputs: Mapping[str, Any]) -> Outgoing:
        return self.session.submit("ticks", inputs, {}, 0, may_pack=True)

    def _send(self, pack: Sequence[Outgoing]) -> None:
        self.messages.append(pack)
        self.most_in_flight = max(self.most_in_flight, self.session.in_flight)
        self.most_bytes = max(self.most_bytes, sum(len(frame) for one in self._open() for frame in one.frames))

    def _open(self) -> list[Outgoing]:
        return [one for message in self.messages for one in message if one.call.outcome is None]

    def _answer(self, call: Pending[Any], timeout_s: float | None) -> None:
        assert any(one.call is call for one in self._open()), "a request is waited for that was never sent"
        self.session.receive(reply(call, call.request_id))


def test_small_requests_are_packed() -> None:
    """Full packs, and a rest."""
    server = Server()
    server.run([{"x": TICK}] * (MAX_PACKED + 3))

    assert [len(message) for message in server.messages] == [MAX_PACKED, 3]


def test_results_are_in_the_order_of_the_inputs() -> None:
    """Whatever was packed with what."""
    server = Server()
    results = server.run([{"x": TICK}, {"x": np.zeros(5_000, np.uint8)}, {"x": TICK}])

    assert [int(result["y"].item()) for result in results] == [1, 2, 3]


def test_a_request_with_frames_goes_alone() -> None:
    """At once, since a packed message has no frames."""
    server = Server()
    server.run([{"x": TICK}, {"x": np.zeros(5_000, np.uint8)}])

    assert [[bool(one.frames) for one in message] for message in server.messages] == [[True], [False]]


def test_no_more_are_in_flight_than_a_backlog_takes() -> None:
    """And packs stay full."""
    server = Server()
    server.run([{"x": TICK}] * 1_000)

    assert server.most_in_flight <= MAX_IN_FLIGHT
    assert sum(len(message) == MAX_PACKED for message in server.messages) == 1_000 // MAX_PACKED


def test_no_more_are_in_flight_than_the_server_lets_this_client() -> None:
    """Its limit comes with the Welcome."""
    server = Server(limits=Limits(max_in_flight=10))
    server.run([{"x": TICK}] * 100)

    assert server.most_in_flight <= 10


def test_large_requests_are_bounded_by_their_bytes() -> None:
    """A lane's backlog has a limit on them too."""
    server = Server()
    size = MAX_BYTES // 4
    server.run([{"x": np.zeros(size, np.uint8)}] * 12)

    assert server.most_bytes <= MAX_BYTES + size


def test_a_pack_is_no_larger_than_the_server_takes() -> None:
    """All headers of one message count."""
    server = Server(limits=Limits(max_payload=1_000))
    server.run([{"x": TICK}] * 10)

    assert all(sum(len(one.header) for one in message) <= 1_000 for message in server.messages)


def test_a_wrong_input_takes_its_place_among_the_results() -> None:
    """The others are served."""
    server = Server()
    results = server.run([{"x": TICK}, {"x": np.array(["text"])}, {"x": TICK}])

    assert isinstance(results[1], RequestRefused)
    assert (int(results[0]["y"].item()), int(results[2]["y"].item())) == (1, 2)


def test_what_ended_before_it_was_sent_is_not_sent() -> None:
    """Its caller was told that the connection is lost, and may send it again."""
    server = Server()
    server.many.add({"x": TICK})
    server.session.end_all(ConnectionLost)
    server.many.add({"x": TICK})
    results = server.many.finish()

    assert [len(message) for message in server.messages] == [1]
    assert isinstance(results[0], ConnectionLost)
    assert int(results[1]["y"].item()) == 2


def test_nothing_in_nothing_out() -> None:
    """No message is sent."""
    server = Server()

    assert (server.run([]), server.messages) == ([], [])


def test_the_session_is_what_counts_calls() -> None:
    """None is left when all have ended."""
    server = Server()
    server.run([{"x": TICK}] * 70)
    session: Session = server.session

    assert session.in_flight == 0


def test_who_may_not_wait_is_told_what_must_end_first() -> None:
    """The oldest pack; what waits for its pack to be full is sent before, or it would never end."""
    server = Server()
    for _ in range(MAX_IN_FLIGHT):
        assert server.many.crowd() == []
        server.many.add({"x": TICK})

    oldest = server.many.crowd()

    assert oldest == server.many.calls()[:MAX_PACKED]
    assert sum(len(message) for message in server.messages) == MAX_IN_FLIGHT
    assert server.many.crowd() == []
