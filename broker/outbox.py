"""Replies on their way to clients: sent at once, or kept a while for a client that does not read. Nobody waits for it.

Owner of the sending side of one ROUTER: the broker's main thread. A reply counts as given when ZeroMQ took it.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import zmq

from schemas.status import Flag
from schemas.wire import MAX_PACKED

from . import accelerator
from .life import Client
from .marks import mark

# A client that has not read for this long is treated as gone.
MAX_AGE_NS = 10_000_000_000
# All clients together may keep as many full outboxes; who has most waiting is given up first.
FULL_OUTBOXES = 4
# From here on a frame is handed to ZeroMQ by reference instead of being copied again.
BY_REFERENCE_BYTES = 65_536

_PACKED = int(Flag.PACKED)
_SENT, _FULL, _GONE = range(3)
_MORE = zmq.SNDMORE | zmq.NOBLOCK


@dataclass(slots=True)
class Reply:
    """One reply: *code* is what the ledger counts when it is sent, None for what is not a request's final."""

    header: bytes
    frames: Sequence[bytes]
    code: int | None


@dataclass(slots=True)
class _Waiting:
    replies: deque[Reply] = field(default_factory=deque)
    payload_bytes: int = 0
    since_ns: int = 0


class Outbox:
    """Sends replies without ever blocking.

    Args:
        router: the socket; ROUTER_MANDATORY is set, so that a full or absent peer is told and not swallowed.
        max_bytes: kept per client at most.
        on_sent: called with the code of each final that was sent.
        on_gone: called with a client that cannot be reached, and how many finals were lost with it.
        pack: returns a header marked as part of a Packed message.
    """

    def __init__(
        self,
        router: zmq.Socket[bytes],
        *,
        max_bytes: int,
        on_sent: Callable[[int], None],
        on_gone: Callable[[Client, int], None],
        pack: Callable[[bytes], bytes],
    ) -> None:
        self._send = router.send
        self._send_many = accelerator.sender(accelerator.load()[0], router)
        self._max_bytes = max_bytes
        self._on_sent = on_sent
        self._on_gone = on_gone
        self._pack = pack
        self._batch: list[tuple[Client, Reply]] = []
        self._turn: dict[Client, list[Reply]] = {}
        self._waiting: dict[Client, _Waiting] = {}
        self._waiting_bytes = 0
        self._has_sent = False

    @property
    def finals_waiting(self) -> int:
        """How many finals are not sent yet."""
        queues = [*self._turn.values(), *(w.replies for w in self._waiting.values()), [reply for _, reply in self._batch]]
        return sum(reply.code is not None for queue in queues for reply in queue)

    @property
    def is_waiting(self) -> bool:
        """True while replies wait for a client that is full."""
        return bool(self._waiting)

    def take_sent(self) -> bool:
        """Say whether anything was sent since the last call: sending may use up the news that a message has come."""
        has_sent, self._has_sent = self._has_sent, False
        return has_sent

    def put(self, client: Client, reply: Reply) -> None:
        """Send *reply*: at once if it has frames, else with the next ``flush``, or packed with others when the turn ends."""
        if reply.frames:
            self._send_or_keep(client, [reply], reply.header, reply.frames)
        elif client.packed_replies:
            self._turn.setdefault(client, []).append(reply)
        else:
            self._batch.append((client, reply))

    def flush(self) -> None:
        """Send the replies of one frame, as many as possible in one call."""
        batch, self._batch = self._batch, []
        at = 0
        if batch and not self._waiting and not any(client.gone for client, _ in batch):
            messages = [(client.identity, reply.header, client.delimiter) for client, reply in batch]
            self._has_sent = True
            at, error = self._send_many(messages, 0)
            if error not in (0, errno.EAGAIN, errno.EHOSTUNREACH):
                raise zmq.ZMQError(error)
            for client, reply in batch[:at]:
                self._count(client, reply)
        # From the first that could not be sent on, one by one: who is full or gone is found out and treated so.
        for client, reply in batch[at:]:
            self._send_or_keep(client, [reply], reply.header, ())

    def end_turn(self) -> None:
        """Send what was kept back, packed for those who take it so."""
        self.flush()
        if not self._turn:
            return
        turn, self._turn = self._turn, {}
        for client, replies in turn.items():
            for at in range(0, len(replies), MAX_PACKED):
                part = replies[at : at + MAX_PACKED]
                headers = [self._pack(reply.header) for reply in part] if len(part) > 1 else [part[0].header]
                self._send_or_keep(client, part, headers[0], headers[1:])

    def retry(self, now_ns: int) -> None:
        """Send what clients can take by now; give up those that are gone or do not read."""
        for client, waiting in list(self._waiting.items()):
            fate = _SENT
            while waiting.replies and fate == _SENT:
                reply = waiting.replies[0]
                fate = self._try(client, reply.header, reply.frames)
                if fate == _SENT:
                    self._count(client, waiting.replies.popleft())
                    waiting.payload_bytes -= _size(reply)
                    self._waiting_bytes -= _size(reply)
                    waiting.since_ns = now_ns
            waiting.since_ns = waiting.since_ns or now_ns
            if not waiting.replies:
                del self._waiting[client]
            elif fate == _GONE or now_ns - waiting.since_ns > MAX_AGE_NS:
                self._give_up(client, ())

    def _send_or_keep(self, client: Client, replies: Sequence[Reply], header: bytes, frames: Sequence[bytes]) -> None:
        """Send one message that carries *replies*; behind others that wait, or to a full peer, they wait."""
        fate = _FULL if client in self._waiting else _GONE if client.gone else self._try(client, header, frames)
        if fate == _SENT:
            for reply in replies:
                self._count(client, reply)
        elif fate == _GONE:
            self._give_up(client, replies)
        else:
            waiting = self._waiting.setdefault(client, _Waiting())
            size = sum(map(_size, replies))
            waiting.replies.extend(replies)
            waiting.payload_bytes += size
            self._waiting_bytes += size
            if waiting.payload_bytes > self._max_bytes:
                self._give_up(client, ())
            elif self._waiting_bytes > FULL_OUTBOXES * self._max_bytes:
                self._give_up(max(self._waiting, key=lambda known: self._waiting[known].payload_bytes), ())

    def _try(self, client: Client, header: bytes, frames: Sequence[bytes]) -> int:
        """Send one message without waiting and say what became of it."""
        send = self._send
        self._has_sent = True
        try:
            send(client.identity, _MORE)
            if client.delimiter:
                send(b"", _MORE)
            if not frames:
                send(header, zmq.NOBLOCK)
                return _SENT
            send(header, _MORE)
            for frame in frames[:-1]:
                send(frame, _MORE, copy=len(frame) < BY_REFERENCE_BYTES)
            send(frames[-1], zmq.NOBLOCK, copy=len(frames[-1]) < BY_REFERENCE_BYTES)
        except zmq.Again:
            return _FULL
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            return _GONE
        return _SENT

    def finals_for(self, client: Client) -> int:
        """Return how many finals for *client* are not sent yet."""
        waiting = self._waiting.get(client, _Waiting())
        mine = [*self._turn.get(client, ()), *waiting.replies, *(reply for one, reply in self._batch if one is client)]
        return sum(reply.code is not None for reply in mine)

    def _count(self, client: Client, reply: Reply) -> None:
        code = reply.code
        if code is not None:
            self._on_sent(code)
            client.finals[code] = client.finals.get(code, 0) + 1

    def _give_up(self, client: Client, replies: Sequence[Reply]) -> None:
        """Treat a client as gone; what was on its way to it is undeliverable."""
        waiting = self._waiting.pop(client, _Waiting())
        self._waiting_bytes -= waiting.payload_bytes
        lost = [*replies, *waiting.replies]
        self._on_gone(client, sum(reply.code is not None for reply in lost))


def _size(reply: Reply) -> int:
    return len(reply.header) + sum(map(len, reply.frames))


def mark_packed(header: bytes) -> bytes:
    """Return *header*, one of ours, marked as part of a Packed message."""
    return mark(header, _PACKED)
