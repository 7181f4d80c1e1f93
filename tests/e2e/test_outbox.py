"""Replies reach clients that read, wait for those that read slowly, and are counted when they cannot be delivered.

Real sockets in one process; a client's queue is two messages long, so that it is full at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import zmq
from server import wait_until

from broker import accelerator
from broker.life import Client
from broker.outbox import MAX_AGE_NS, Outbox, Reply
from schemas.status import Code
from schemas.wire import MAX_PACKED

QUEUE = 2
PATIENCE_MS = 10_000


@dataclass
class Desk:
    """An outbox, its ROUTER, and what it reported."""

    context: zmq.Context[zmq.Socket[bytes]]
    router: zmq.Socket[bytes]
    outbox: Outbox
    sent: Counter[int] = field(default_factory=Counter)
    gone: list[tuple[bytes, int]] = field(default_factory=list)

    def connect(self, identity: bytes, kind: int = zmq.DEALER) -> tuple[Client, zmq.Socket[bytes]]:
        """Return a client that has sent its first message, and its socket."""
        socket = self.context.socket(kind)
        socket.set(zmq.IDENTITY, identity)
        socket.set(zmq.RCVHWM, 1)
        socket.set(zmq.RCVTIMEO, PATIENCE_MS)
        socket.connect("inproc://door")
        socket.send(b"hello")
        self.router.recv_multipart()
        return Client(identity), socket

    def put(self, client: Client, reply: Reply) -> None:
        """Send *reply* by itself."""
        self.outbox.put(client, reply)
        self.outbox.flush()

    def _retry_and_look(self, socket: zmq.Socket[bytes], now_ns: int) -> bool:
        # Asking for events lets the ROUTER learn what its peers have read.
        self.router.get(zmq.EVENTS)
        self.outbox.retry(now_ns)
        return bool(socket.poll(0))

    def read(self, socket: zmq.Socket[bytes], count: int, now_ns: int = 1) -> list[int]:
        """Read *count* messages, trying again to send what waits before each; return which they were."""
        received = []
        for _ in range(count):
            wait_until(lambda: self._retry_and_look(socket, now_ns), "a reply")
            received.append(socket.recv_multipart())
        return numbers(received)

    def wait_until_gone(self, identity: bytes) -> None:
        """Wait until the ROUTER knows that a client has left."""
        wait_until(lambda: not self._is_there(identity), "the end of a connection")

    def _is_there(self, identity: bytes) -> bool:
        self.router.get(zmq.EVENTS)
        try:
            self.router.send_multipart([identity, b""], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            return error.errno == zmq.EAGAIN
        return True


@pytest.fixture(params=["plain", "accelerated"])
def desk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """An outbox with room for 1000 bytes a client."""
    monkeypatch.setenv("SLOTLINE_ACCELERATOR", "off" if request.param == "plain" else "on")
    if request.param == "accelerated" and accelerator.load()[0] is None:
        pytest.skip(f"no accelerator: {accelerator.load()[1]}")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.set(zmq.ROUTER_MANDATORY, 1)
    router.set(zmq.SNDHWM, 1)
    router.set(zmq.RCVTIMEO, PATIENCE_MS)
    router.bind("inproc://door")

    def on_sent(code: int) -> None:
        made.sent[code] += 1

    def on_gone(client: Client, finals: int) -> None:
        client.gone = True
        made.gone.append((client.identity, finals))

    outbox = Outbox(router, max_bytes=1_000, on_sent=on_sent, on_gone=on_gone, pack=lambda header: b"packed " + header)
    made = Desk(context, router, outbox)
    yield made
    context.destroy(linger=0)


def final(number: int, code: int | None = 0, size: int = 10) -> Reply:
    """Return a final of so many bytes that begins with its number."""
    return Reply(str(number).encode().ljust(size, b"."), (), code)


def numbers(messages: list[list[bytes]]) -> list[int]:
    """Return which finals came, one a message."""
    return [int(header.rstrip(b".")) for (header,) in messages]


def test_a_reply_is_counted_when_it_was_sent(desk: Desk) -> None:
    """Under its code; what is no final is not counted."""
    client, socket = desk.connect(b"a")
    desk.put(client, final(1))
    assert socket.recv_multipart() == [b"1........."]
    desk.put(client, final(2, int(Code.BUSY)))
    desk.put(client, final(3, None))

    assert desk.sent == {0: 1, Code.BUSY: 1}
    assert desk.outbox.finals_waiting == 0


def test_large_frames_follow_the_header(desk: Desk) -> None:
    """Also those that are handed over by reference."""
    client, socket = desk.connect(b"a")
    frames = [b"x" * 10, b"y" * 100_000, b"z" * 100_000]
    desk.put(client, Reply(b"header", frames, 0))

    assert socket.recv_multipart() == [b"header", *frames]


def test_a_client_with_a_req_socket_gets_its_empty_frame_back(desk: Desk) -> None:
    """Without it the socket drops the reply."""
    client, socket = desk.connect(b"a", zmq.REQ)
    client.delimiter = True
    desk.put(client, Reply(b"header", [b"payload"], 0))

    assert socket.recv_multipart() == [b"header", b"payload"]


def test_replies_to_a_client_that_does_not_read_wait_in_order(desk: Desk) -> None:
    """Nobody else waits for it; they are sent when it reads again."""
    slow, slow_socket = desk.connect(b"slow")
    other, other_socket = desk.connect(b"other")
    for number in range(6):
        desk.put(slow, final(number))
    desk.put(other, final(7))

    assert numbers([other_socket.recv_multipart()]) == [7]
    assert (desk.sent[0], desk.outbox.finals_waiting) == (QUEUE + 1, 6 - QUEUE)
    assert desk.read(slow_socket, 6) == list(range(6))
    assert (desk.sent[0], desk.outbox.finals_waiting, desk.gone) == (7, 0, [])


def test_a_client_that_does_not_read_for_too_long_is_given_up(desk: Desk) -> None:
    """What waits for it is lost and counted, finals only."""
    client, _ = desk.connect(b"slow")
    for number in range(QUEUE + 2):
        desk.put(client, final(number))
    desk.put(client, final(9, None))
    desk.outbox.retry(now_ns=1)
    desk.outbox.retry(now_ns=1 + MAX_AGE_NS)
    assert desk.gone == []

    desk.outbox.retry(now_ns=2 + MAX_AGE_NS)
    assert desk.gone == [(b"slow", 2)]
    assert desk.outbox.finals_waiting == 0


def test_one_that_reads_a_little_now_and_then_is_not_given_up(desk: Desk) -> None:
    """Its age counts from the last reply that it took."""
    client, socket = desk.connect(b"slow")
    for number in range(6):
        desk.put(client, final(number))
    for turn in range(6):
        assert desk.read(socket, 1, now_ns=1 + turn * MAX_AGE_NS // 2) == [turn]

    assert (desk.gone, desk.outbox.finals_waiting) == ([], 0)


def test_a_client_for_which_too_many_bytes_wait_is_given_up(desk: Desk) -> None:
    """The broker's memory is not its store."""
    client, _ = desk.connect(b"slow")
    for number in range(QUEUE + 10):
        desk.put(client, final(number, size=100))
    assert desk.gone == []

    desk.put(client, final(99, size=100))
    assert desk.gone == [(b"slow", 11)]


def test_when_too_many_bytes_wait_for_all_together_the_fullest_is_given_up(desk: Desk) -> None:
    """So that many who do not read cannot add up; the others' replies are kept."""
    silent = {name: desk.connect(name) for name in (b"a", b"b", b"c", b"d", b"e")}
    for client, _ in silent.values():
        for number in range(QUEUE):
            desk.put(client, final(number))
    desk.put(silent[b"c"][0], final(QUEUE, size=900))
    for name in (b"a", b"b", b"d", b"e"):
        assert desk.gone == []
        desk.put(silent[name][0], final(QUEUE, size=800))

    assert desk.gone == [(b"c", 1)]
    assert desk.outbox.finals_waiting == 4


def test_a_client_that_is_gone_is_found_by_the_first_send(desk: Desk) -> None:
    """Its reply is undeliverable, and so is whatever comes later."""
    client, socket = desk.connect(b"a")
    socket.close(linger=0)
    desk.wait_until_gone(b"a")
    desk.put(client, final(1))
    desk.put(client, final(2))

    assert (desk.gone, desk.sent) == ([(b"a", 1), (b"a", 1)], {})


def test_a_client_that_nobody_knows_is_gone(desk: Desk) -> None:
    """ROUTER_MANDATORY tells instead of swallowing."""
    desk.put(Client(b"nobody"), final(1))

    assert (desk.gone, desk.sent) == ([(b"nobody", 1)], {})


def test_small_replies_of_one_turn_leave_as_one_message(desk: Desk) -> None:
    """For clients that asked for it; each header is marked, each final counted."""
    client, socket = desk.connect(b"a")
    client.packed_replies = True
    for number in range(3):
        desk.put(client, final(number))
    assert (desk.outbox.finals_waiting, desk.sent) == (3, {})
    desk.outbox.end_turn()

    assert socket.recv_multipart() == [b"packed " + final(number).header for number in range(3)]
    assert (desk.outbox.finals_waiting, desk.sent[0]) == (0, 3)


def test_one_reply_alone_is_not_marked(desk: Desk) -> None:
    """There is nothing to pack it with."""
    client, socket = desk.connect(b"a")
    client.packed_replies = True
    desk.put(client, final(1))
    desk.outbox.end_turn()

    assert socket.recv_multipart() == [final(1).header]


def test_no_message_carries_more_than_its_most(desk: Desk) -> None:
    """The rest goes into the next."""
    client, socket = desk.connect(b"a")
    client.packed_replies = True
    for number in range(MAX_PACKED + 2):
        desk.put(client, final(number))
    desk.outbox.end_turn()

    assert [len(socket.recv_multipart()) for _ in range(2)] == [MAX_PACKED, 2]


def test_replies_with_frames_are_never_packed(desk: Desk) -> None:
    """And do not wait for the end of the turn."""
    client, socket = desk.connect(b"a")
    client.packed_replies = True
    desk.put(client, Reply(b"h", [b"f"], 0))

    assert socket.recv_multipart() == [b"h", b"f"]


def test_a_packed_message_that_finds_no_room_waits_as_single_replies(desk: Desk) -> None:
    """Unmarked, in order, behind what waits already."""
    client, socket = desk.connect(b"a")
    for number in range(QUEUE + 1):
        desk.put(client, final(number))
    client.packed_replies = True
    desk.put(client, final(3))
    desk.put(client, final(4))
    desk.outbox.end_turn()
    assert desk.outbox.finals_waiting == 3

    assert desk.read(socket, 5) == list(range(5))


def test_replies_kept_for_the_end_of_the_turn_are_lost_with_their_client(desk: Desk) -> None:
    """Every final is counted once, one way or the other."""
    client = Client(b"nobody")
    client.packed_replies = True
    for number in range(3):
        desk.put(client, final(number))
    desk.outbox.end_turn()

    assert desk.gone == [(b"nobody", 3)]


def test_replies_sent_together_part_ways_at_who_is_full_or_gone(desk: Desk) -> None:
    """Each client gets its own, in order; the full one's wait, the absent one's are counted."""
    fast, fast_socket = desk.connect(b"fast")
    slow, slow_socket = desk.connect(b"slow")
    for number in range(3 * QUEUE):
        desk.outbox.put(slow, final(number))
    desk.outbox.put(Client(b"nobody"), final(50))
    desk.outbox.put(fast, final(60))
    assert desk.outbox.finals_waiting == 3 * QUEUE + 2

    desk.outbox.flush()

    assert desk.gone == [(b"nobody", 1)]
    assert desk.read(fast_socket, 1) == [60]
    assert desk.read(slow_socket, 3 * QUEUE) == list(range(3 * QUEUE))
    assert desk.sent == {0: 3 * QUEUE + 1}
    assert desk.outbox.finals_waiting == 0


def test_an_empty_first_frame_is_sent_to_who_sends_one(desk: Desk) -> None:
    """A REQ socket waits for it."""
    client, socket = desk.connect(b"req")
    client.delimiter = True
    desk.put(client, final(1))
    wait_until(lambda: bool(socket.poll(0)), "a reply")

    assert socket.recv_multipart() == [b"", final(1).header]
