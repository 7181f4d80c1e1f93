"""A door for clients: reads one ROUTER, tells requests from questions, refuses what is wrong. Owner: the broker's main thread."""

from __future__ import annotations

from collections.abc import Sequence

import zmq

from schemas.config import ServerConfig
from schemas.error_templates import ErrorTemplates
from schemas.layout import Layout, check_route, route_if_readable
from schemas.layout_cache import LayoutCache
from schemas.logs import get_logger
from schemas.messages import Cancel, read_message, write_message
from schemas.status import Code, Flag, Kind, RequestError, printable
from schemas.wire import MAX_FRAMES, MAX_HEADER_BYTES, MAX_PACKED, ROUTE, Ids

from .answers import Answers
from .core import Core, Ended
from .intake import Frame, Intake
from .life import Client, Request
from .outbox import Outbox, Reply

_INFER = int(Kind.INFER_REQUEST)
_PACKED = int(Flag.PACKED)
# More frames than any valid message has are read and dropped up to here, then the peer's message is refused as a whole.
_FRAMES_KEPT = max(MAX_FRAMES, MAX_PACKED) + 1


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
        core: Core,
        answers: Answers,
        *,
        intake: Intake | None,
        config: ServerConfig,
    ) -> None:
        self._recv = router.recv
        self._get = router.get
        self.outbox = outbox
        self._core = core
        self._ledger = core.ledger
        self._answers = answers
        answers.outboxes.append(outbox)
        self._intake = intake
        self._max_clients = config.max_clients
        self._max_message_bytes = config.max_message_bytes
        self._clients: dict[bytes, Client] = {}
        self._cache = LayoutCache()
        self._errors = ErrorTemplates()

    # --- reading ---------------------------------------------------------------------------------------------------------

    def drain(self, now_ns: int, limit: int) -> int:
        """Handle up to *limit* messages that are there; return how many."""
        recv, get, clients = self._recv, self._get, self._clients
        for count in range(limit):
            try:
                identity = recv(zmq.NOBLOCK)
            except zmq.Again:
                return count
            header = recv()
            client = clients.get(identity) or self._new_client(identity)
            if not header and get(zmq.RCVMORE):
                client.delimiter = True
                header = recv()
            if get(zmq.RCVMORE):
                self._handle_frames(client, header, now_ns)
            else:
                self._handle(client, header, (), now_ns)
        return limit

    def _new_client(self, identity: bytes) -> Client:
        """Remember who sent; a table full of idle names forgets the oldest, which only costs it its Hello's wishes."""
        if len(self._clients) >= self._max_clients:
            idle = [known for known, client in self._clients.items() if not client.in_flight and not client.orphans]
            for known in idle[: len(idle) // 2 + 1]:
                del self._clients[known]
        client = self._clients[identity] = Client(identity)
        return client

    def forget(self, client: Client) -> None:
        """Drop a client that is gone."""
        self._clients.pop(client.identity, None)

    def _handle_frames(self, client: Client, header: bytes, now_ns: int) -> None:
        """Read the rest of a message: payload frames by reference, the headers of a packed one as bytes."""
        route = route_if_readable(header) if len(header) <= MAX_HEADER_BYTES else None
        is_packed = route is not None and bool(route.flags & _PACKED)
        parts: list[bytes] = []
        frames: list[Frame] = []
        more, kept_bytes = True, 0
        while more:
            if is_packed:
                part: bytes | zmq.Frame = self._recv()
            else:
                part = self._recv(copy=False)
            more = bool(self._get(zmq.RCVMORE))
            kept_bytes += len(part)
            if len(parts) + len(frames) >= _FRAMES_KEPT or kept_bytes > 2 * self._max_message_bytes:
                continue
            if isinstance(part, bytes):
                parts.append(part)
            else:
                frames.append(part.buffer)
        if not is_packed:
            self._handle(client, header, frames, now_ns)
        elif len(parts) < MAX_PACKED:
            for one in (header, *parts):
                self._handle(client, one, (), now_ns)
        else:
            error = RequestError(Code.BAD_FRAMES, field="packed", expected=f"at most {MAX_PACKED} headers", got=len(parts) + 1)
            self._refuse_unread(client, header, error)

    # --- one message -----------------------------------------------------------------------------------------------------

    def _handle(self, client: Client, header: bytes, frames: Sequence[Frame], now_ns: int) -> None:
        try:
            layout = self._read_layout(header, frames)
            route = ROUTE.unpack_from(header, layout.route_at)
            if route[9] != _INFER or _INFER not in layout.kinds or self._intake is None:
                self._question(client, layout, route, header, len(frames))
                return
        except RequestError as error:
            self._refuse_unread(client, header, error)
            return
        self._ledger.received += 1
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
            self.outbox.put(client, Reply(text, (), int(refusal.code)))

    def _read_layout(self, header: bytes, frames: Sequence[Frame]) -> Layout:
        """Return the verified layout of a message, after the checks of what can be counted."""
        if len(header) > MAX_HEADER_BYTES:
            raise RequestError(Code.TOO_LARGE, field="header", expected=f"at most {MAX_HEADER_BYTES} bytes", got=len(header))
        if len(frames) > MAX_FRAMES:
            raise RequestError(Code.BAD_FRAMES, field="frames", expected=f"at most {MAX_FRAMES}", got=len(frames))
        if frames and sum(map(len, frames)) > self._max_message_bytes:
            limit = f"at most {self._max_message_bytes} bytes (server.max_message_bytes)"
            raise RequestError(Code.TOO_LARGE, field="frames", expected=limit, got=sum(map(len, frames)))
        try:
            return self._cache.read(header)
        except RequestError:
            raise
        except Exception as error:
            raise _fault_of_ours(error) from error

    def _read_request(
        self, client: Client, layout: Layout, route: Sequence[int], header: bytes, frames: Sequence[Frame], now_ns: int
    ) -> Request:
        assert self._intake is not None
        if route[0] in client.in_flight:
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

    def _refuse_unread(self, client: Client, header: bytes, error: RequestError) -> None:
        """Refuse a message that could not be verified: by its id when its route is readable, else by id 0."""
        route = route_if_readable(header) if len(header) <= MAX_HEADER_BYTES else None
        if route is not None and route.kind == _INFER and self._intake is not None:
            self._ledger.received += 1
            self._refuse(client, route.request_id, (route.request_id, route.born_us, route.key), error)
            return
        self._ledger.malformed += 1
        ids = (0, 0, 0) if route is None else (route.request_id, route.born_us, route.key)
        text = self._errors.header(ids, error.code, error.message, field=printable(error.field))
        self.outbox.put(client, Reply(text, (), None))

    def _refuse(self, client: Client, request_id: int, ids: Ids, error: RequestError) -> None:
        """Answer a request that is wrong; one whose id is in flight already gets id 0, so that the other keeps its answer."""
        if request_id in client.in_flight:
            ids = (0, *ids[1:])
        text = self._errors.header(ids, error.code, error.message, field=printable(error.field))
        self.outbox.put(client, Reply(text, (), int(error.code)))

    def answer_ended(self, ended: Ended, message: str = "") -> None:
        """Answer a request that ended without a result."""
        self.answer_error(ended.request, ended.code, message or ended.message)

    def answer_error(self, request: Request, code: Code, message: str, *, stage: str = "", field: str = "") -> None:
        """Answer *request* with an error."""
        ids = (request.request_id, request.born_us, request.key)
        text = self._errors.header(ids, code, message, stage=stage, field=printable(field))
        self.outbox.put(request.client, Reply(text, (), int(code)))
