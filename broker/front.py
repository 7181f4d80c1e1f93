"""A door for clients: reads one ROUTER, tells requests from questions, refuses what is wrong. Owner: the broker's main thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence

import zmq

from schemas.error_templates import ErrorTemplates
from schemas.layout import Layout, check_route, check_route_alone, route_if_readable
from schemas.layout_cache import LayoutCache
from schemas.logs import get_logger
from schemas.messages import Cancel, read_message, write_message
from schemas.status import Code, Flag, Kind, RequestError, printable
from schemas.wire import MAX_FRAMES, MAX_HEADER_BYTES, MAX_PACKED, ROUTE, Ids

from . import accelerator
from .accelerator import HAS_DELIMITER, HAS_MORE, IS_UNKNOWN
from .answers import Answers
from .core import Core
from .endings import Ended
from .intake import Frame, Intake
from .life import Client, Request
from .marks import mark
from .outbox import Outbox, Reply
from .roster import Roster

_INFER = int(Kind.INFER_REQUEST)
_PACKED = int(Flag.PACKED)
_RELEASED = int(Flag.RELEASED)
# Enough to see that a message has too many frames; what comes after is read and dropped.
_FRAMES_KEPT = max(MAX_FRAMES, MAX_PACKED) + 1
_FRAMES_PER_REST = 1024
# A peer may send what takes long to check (15 ms for the worst header): others are served in between.
TURN_NS = 5_000_000


def _fault_of_ours(error: Exception) -> RequestError:
    """The codec must raise nothing but RequestError; when it does, one message suffers and a person is told."""
    get_logger().error("codec_fault", error=type(error).__name__, exc_info=error)
    return RequestError(Code.INTERNAL, message="the server failed to read this message; its log says why")


class Front:
    """One ROUTER and the clients behind it."""

    def __init__(
        self,
        router: zmq.Socket[bytes],
        outbox: Outbox,
        roster: Roster,
        core: Core,
        answers: Answers,
        intake: Intake | None,
    ) -> None:
        hot, _ = accelerator.load()
        self._receive = accelerator.receiver(hot, router)
        self._recv = router.recv
        self._get = router.get
        self.outbox = outbox
        self._core = core
        self._ledger = core.ledger
        self._answers = answers
        answers.outboxes.append(outbox)
        answers.rosters.append(roster)
        self._intake = intake
        self.roster = roster
        # The same bound for a whole message as for one frame.
        self._max_message_bytes = int(router.get(zmq.MAXMSGSIZE))
        self._cache = LayoutCache(decider=accelerator.decider(hot))
        self._errors = ErrorTemplates()
        self._taken: deque[accelerator.Message] = deque()
        self._unfinished: Iterator[None] | None = None

    # --- reading ---------------------------------------------------------------------------------------------------------

    def drain(self, now_ns: int, limit: int) -> int:
        """Handle up to *limit* messages that are there, for TURN_NS at most; return how many, *limit* if more may be there."""
        clock, taken = time.monotonic_ns, self._taken
        until_ns = clock() + TURN_NS
        if self._unfinished is not None and not self._go_on(until_ns):
            return limit
        count = 0
        while count < limit:
            if not taken:
                taken.extend(self._receive(self.roster.clients, limit - count))
                if not taken:
                    return count
            count += 1
            if not self._begin(taken.popleft(), now_ns) and not self._go_on(until_ns):
                break
            if clock() > until_ns:
                break
        return limit

    def _begin(self, message: accelerator.Message, now_ns: int) -> bool:
        """Handle one message that was taken off the socket; False when the rest of it must be read first."""
        client, header, bits = message
        if bits & IS_UNKNOWN:
            assert isinstance(client, bytes)
            # As a Frame, which knows whose it is: once for each connection.
            first = self._recv(copy=False)
            client, header = self.roster.enter(client, first), first.bytes
            bits = HAS_MORE if self._get(zmq.RCVMORE) else 0
            if not header and bits:
                header, bits = self._recv(), HAS_DELIMITER | (HAS_MORE if self._get(zmq.RCVMORE) else 0)
        assert isinstance(client, Client)
        if bits & HAS_DELIMITER:
            client.delimiter = True
        if not bits & HAS_MORE:
            self._handle(client, header, (), now_ns)
            return True
        self._unfinished = self._frames(client, header, now_ns)
        return False

    def _go_on(self, until_ns: int) -> bool:
        """Work on the message in hand; return True when it is finished, False when time is over before."""
        assert self._unfinished is not None
        for _ in self._unfinished:
            if time.monotonic_ns() > until_ns:
                return False
        self._unfinished = None
        return True

    def _frames(self, client: Client, header: bytes, now_ns: int) -> Iterator[None]:
        """Read and handle the rest of a message: payload frames by reference, the headers of a packed one as bytes.

        Yields where it may rest until the next turn: one message may have millions of frames, or 64 headers that take 10 ms each.
        """
        route = route_if_readable(header) if len(header) <= MAX_HEADER_BYTES else None
        is_packed = route is not None and bool(route.flags & _PACKED)
        kept: list[bytes | zmq.Frame] = []
        more, count, kept_bytes = True, 0, 0
        while more:
            part: bytes | zmq.Frame = self._recv() if is_packed and count < MAX_PACKED else self._recv(copy=False)
            more = bool(self._get(zmq.RCVMORE))
            count += 1
            kept_bytes += len(part)
            if count <= _FRAMES_KEPT and kept_bytes <= 2 * self._max_message_bytes:
                kept.append(part)
            elif count % _FRAMES_PER_REST == 0:
                yield
        if not is_packed:
            self._handle(client, header, [part.buffer for part in kept if isinstance(part, zmq.Frame)], now_ns)
        elif count >= MAX_PACKED:
            error = RequestError(Code.BAD_FRAMES, field="packed", expected=f"at most {MAX_PACKED} headers", got=count + 1)
            self._refuse_unread(client, header, error)
        elif kept_bytes > self._max_message_bytes:
            self._refuse_unread(client, header, self._too_large("packed", kept_bytes))
        else:
            for one in (header, *kept):
                assert isinstance(one, bytes)
                self._handle(client, one, (), now_ns)
                yield

    # --- one message -----------------------------------------------------------------------------------------------------

    def _handle(self, client: Client, header: bytes, frames: Sequence[Frame], now_ns: int) -> None:
        if client.barred:
            barred = RequestError(Code.UNAUTHORIZED, message=client.barred)
            self._refuse_unread(client, header, barred, is_malformed=False)
            return
        try:
            layout = self._read_layout(header, frames)
        except RequestError as error:
            self._refuse_unread(client, header, error)
            return
        route = ROUTE.unpack_from(header, layout.route_at)
        if route[9] != _INFER or _INFER not in layout.kinds or self._intake is None:
            try:
                self._question(client, layout, route, header, len(frames))
            except RequestError as error:
                self._refuse_unread(client, header, error, is_malformed=False)
            return
        self._ledger.received += 1
        client.received += 1
        try:
            request = self._read_request(client, layout, route, header, frames, now_ns)
        except RequestError as error:
            self._refuse(client, route[0], (route[0], route[2], route[3]), error)
            return
        # Not guarded: what the core raises is a fault of its own, and its state cannot be trusted after it.
        refusal = self._core.admit(request)
        if refusal is not None:
            ids = (route[0], route[2], route[3])
            text = self._errors.header(ids, refusal.code, refusal.message, retry_after_us=refusal.retry_after_us)
            if request.leases:
                text = mark(text, _RELEASED)
            self.outbox.put(client, Reply(text, (), int(refusal.code)))

    def _read_layout(self, header: bytes, frames: Sequence[Frame]) -> Layout:
        """Return the verified layout of a message, after the checks of what can be counted."""
        if len(frames) > MAX_FRAMES:
            raise RequestError(Code.BAD_FRAMES, field="frames", expected=f"at most {MAX_FRAMES}", got=len(frames))
        if frames and sum(map(len, frames)) > self._max_message_bytes:
            raise self._too_large("frames", sum(map(len, frames)))
        if len(header) > MAX_HEADER_BYTES:
            raise RequestError(Code.TOO_LARGE, field="header", expected=f"at most {MAX_HEADER_BYTES} bytes", got=len(header))
        try:
            return self._cache.read(header)
        except RequestError:
            # What is wrong with the tensors comes after what the Route says wrong of itself.
            check_route_alone(header, len(frames))
            raise
        except Exception as error:
            raise _fault_of_ours(error) from error

    def _too_large(self, field: str, size: int) -> RequestError:
        limit = f"at most {self._max_message_bytes} bytes (server.max_message_bytes)"
        return RequestError(Code.TOO_LARGE, field=field, expected=limit, got=size)

    def _read_request(
        self, client: Client, layout: Layout, route: Sequence[int], header: bytes, frames: Sequence[Frame], now_ns: int
    ) -> Request:
        assert self._intake is not None
        if route[0] in client.in_flight:
            check_route(route, layout, len(frames))
            self._ledger.duplicates += 1
            raise RequestError(Code.DUPLICATE_ID, field=f"request_id {route[0]}", expected="an id that is not in flight")
        try:
            return self._intake.request(client, layout, route, header, frames, now_ns)
        except RequestError:
            raise
        except Exception as error:
            raise _fault_of_ours(error) from error

    def _question(self, client: Client, layout: Layout, route: Sequence[int], header: bytes, frames: int) -> None:
        """Answer what is not inference."""
        check_route(route, layout, frames)
        _, body = read_message(header)
        if isinstance(body, Cancel):
            ended = self._core.cancel(client, route[0])
            if ended is not None:
                self.answer_ended(ended)
            return
        reply = self._answers.answer(client, body, is_control=self._intake is None)
        self.outbox.put(client, Reply(write_message(reply, (route[0], route[2], route[3])), (), None))

    # --- errors ----------------------------------------------------------------------------------------------------------

    def _refuse_unread(self, client: Client, header: bytes, error: RequestError, *, is_malformed: bool = True) -> None:
        """Refuse a message that was not read as a request: by its id when its route is readable, else by id 0.

        Args:
            is_malformed: its bytes are at fault; else what it asks, or who asks.
        """
        route = route_if_readable(header) if len(header) <= MAX_HEADER_BYTES else None
        if route is not None and route.kind == _INFER and self._intake is not None:
            self._ledger.received += 1
            client.received += 1
            self._refuse(client, route.request_id, (route.request_id, route.born_us, route.key), error)
            return
        if is_malformed or route is None:
            self._ledger.malformed += 1
        else:
            self._ledger.refused_questions += 1
        ids = (0, 0, 0) if route is None else (route.request_id, route.born_us, route.key)
        text = self._errors.header(ids, error.code, error.message, field=printable(error.field))
        self.outbox.put(client, Reply(text, (), None))

    def _refuse(self, client: Client, request_id: int, ids: Ids, error: RequestError) -> None:
        """Answer a request that is wrong; one whose id is in flight already gets id 0, so that the other keeps its answer."""
        if request_id in client.in_flight:
            ids = (0, *ids[1:])
        text = self._errors.header(ids, error.code, error.message, field=printable(error.field))
        if error.code >= Code.BUSY:
            # Codes 1xx say by themselves that no frame of a lease was taken.
            text = mark(text, _RELEASED)
        self.outbox.put(client, Reply(text, (), int(error.code)))

    def answer_ended(self, ended: Ended, message: str = "") -> None:
        """Answer a request that ended without a result."""
        self.answer_error(ended.request, ended.code, message or ended.message, field=ended.field)

    def answer_error(self, request: Request, code: Code, message: str, *, stage: str = "", field: str = "") -> None:
        """Answer *request* with an error."""
        ids = (request.request_id, request.born_us, request.key)
        text = self._errors.header(ids, code, message, stage=stage, field=printable(field))
        if request.leases:
            text = mark(text, self._core.leases.settle(request))
        self.outbox.put(request.client, Reply(text, (), int(code)))
