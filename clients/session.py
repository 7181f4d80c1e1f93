"""The client's side of the protocol, pure: which calls are in flight, how requests are written, what replies mean.

No socket, no clock, no logger: times come in as integer nanoseconds of the monotonic clock, messages go in and out as bytes. What
a connection is, and when it ends, is the shell's business (``client.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from schemas.arguments import truth
from schemas.arrays import Source, lent_or_copied, read_outputs
from schemas.layout import Layout, check_route, route_if_readable
from schemas.layout_cache import LayoutCache
from schemas.messages import (
    Body,
    Cancel,
    Control,
    Health,
    Hello,
    Limits,
    Metadata,
    Welcome,
    write_message,
)
from schemas.status import Code, Flag, Kind, RequestError
from schemas.wire import IDENTIFIER, ROUTE

from .arguments import MAX_U64, checked_number
from .calls import Options, Pending, Result, Wait
from .errors import BadReply, Busy, Cancelled, DeadlineExceeded, SlotlineError, refused_here
from .forms import Forms, describe_all
from .leases import LeaseBook, contents_in_place, frames_of
from .rare_replies import is_refusal, read_rare

CLIENT = "slotline-python/0.1.0"
# From here on a frame may be lent to the socket; below it, copying is cheaper than keeping track.
BY_REFERENCE_BYTES = 65_536
NS_PER_US = 1_000

_IDEMPOTENT, _PACKED = int(Flag.IDEMPOTENT), int(Flag.PACKED)
_RELEASED = int(Flag.RELEASED)
_INFER_REPLY, _RELEASE = Kind.INFER_REPLY, int(Kind.RELEASE)
# What each question is answered with.
_ANSWERS: dict[type[Body], Kind] = {
    Hello: Kind.WELCOME,
    Health: Kind.HEALTH_REPLY,
    Metadata: Kind.METADATA_REPLY,
    Control: Kind.CONTROL_REPLY,
}

Frame = bytes | memoryview


class Outgoing(NamedTuple):
    """One message to send, and the call that it starts."""

    call: Pending[Any]
    header: bytes
    frames: Sequence[Frame] = ()


class Session:
    """All that a client knows of its calls. Owned by the thread of its client.

    Args:
        timeout_us: how long a call lasts when it names no budget.
        wait: called by a Pending whose result is wanted; it returns when the call has ended or the given seconds have passed.
        pending: what a call is for the shell.

    Attributes:
        epoch: the server's present life, 0 before the first Welcome.
        limits: what the server takes.
        leases: the client's, and the frames that its requests use.
        lease_access: (path, token) by which this connection may ask for leases, "" where the server lends none.
        strays: replies to calls that had ended before, or that nobody made.
    """

    def __init__(self, *, timeout_us: int, wait: Wait, pending: type[Pending[Any]] = Pending) -> None:
        self.epoch = 0
        self.limits = Limits()
        self.strays = 0
        self._timeout_us = timeout_us
        self._plain_route = (timeout_us, timeout_us, 0, 0, _IDEMPOTENT)
        self._wait = wait
        self._pending = pending
        self._last_id = 0
        self._calls: dict[int, Pending[Any]] = {}
        self._forms = Forms()
        self._cache = LayoutCache()
        self.leases = LeaseBook()
        self.lease_access = ("", "")

    @property
    def in_flight(self) -> int:
        """How many calls have not ended."""
        return len(self._calls)

    @property
    def expects_messages(self) -> bool:
        """Whether something is to come: an answer, or news that frames of a lease are free."""
        return bool(self._calls or self.leases.held)

    @property
    def is_full(self) -> bool:
        """Whether the server's limit on unanswered requests is reached."""
        return 0 < self.limits.max_in_flight <= len(self._calls)

    # --- what goes out ---------------------------------------------------------------------------------------------------

    def hello(self, now_ns: int, *, timeout_us: int) -> Outgoing:
        """Start a connection; the answer goes to ``welcome``."""
        return self.ask(Hello(CLIENT, (IDENTIFIER.decode(),), packed_replies=True), now_ns, timeout_us=timeout_us)

    def await_welcome(self, now_ns: int) -> Outgoing:
        """Start a call that is answered by being connected: its header is empty, for there is nothing to send."""
        self._last_id += 1
        return Outgoing(self._start("connect", now_ns + self._timeout_us * NS_PER_US, Kind.WELCOME), b"")

    def ask(self, body: Body, now_ns: int, *, timeout_us: int = 0) -> Outgoing:
        """Start a call that is no inference; its result is the body of the answer.

        Raises:
            RequestRefused: it is too large to be sent.
        """
        kind = _ANSWERS[type(body)]
        try:
            header = write_message(body, (self._last_id + 1, 0, 0))
        except RequestError as error:
            raise refused_here(error) from None
        self._last_id += 1
        call = self._start(type(body).__name__.lower(), now_ns + (timeout_us or self._timeout_us) * NS_PER_US, kind)
        return Outgoing(call, header)

    def submit(self, model: str, inputs: Mapping[str, Any], options: Options, now_ns: int, *, may_pack: bool = False) -> Outgoing:
        """Start an inference.

        Args:
            may_pack: mark the header as part of a Packed message, which it may be when it has no frames.

        Raises:
            RequestRefused: the server would not take it; nothing was started.
            TypeError: an option is unknown, or not of its kind.
        """
        try:
            tensors, sources = describe_all(inputs)
            form = self._forms.find(model, tensors, options)
            budget_us, lasts_us, born_us, key, flags = self._route(options) if options else self._plain_route
        except RequestError as error:
            raise refused_here(error) from None
        self._check_room()
        if may_pack and not form.frames:
            flags |= _PACKED
        self._last_id = request_id = self._last_id + 1
        flags |= form.flags
        inline = [lent_or_copied(sources[index], lend=False) for index in form.inline]
        header = form.template.header(request_id, budget_us, inline, born_us=born_us, key=key, flags=flags)
        frames = [self._frame(sources[index], options) for index in form.frames] if form.frames else ()
        if options.get("checksum"):
            header = form.sealed(header, [*inline, *frames, *contents_in_place(inputs)])
        if form.names_leases:
            self.leases.hold(request_id, frames_of(inputs, options.get("outputs")))
        return Outgoing(self._start(model, now_ns + lasts_us * NS_PER_US, _INFER_REPLY), header, frames)

    def cancel(self, call: Pending[Any]) -> bytes | None:
        """End *call* now, and return the message that tells the server; None when it had ended by itself."""
        if self._calls.pop(call.request_id, None) is None:
            return None
        call.end(Cancelled(Code.CANCELLED, f"{call.model}: cancelled by its caller"))
        return write_message(Cancel(), (call.request_id, 0, 0))

    def _start(self, model: str, deadline_ns: int, answer: Kind) -> Pending[Any]:
        call = self._pending(self._last_id, model, deadline_ns, answer, self._wait)
        self._calls[self._last_id] = call
        return call

    def _check_room(self) -> None:
        if self.is_full:
            limit = self.limits.max_in_flight
            raise Busy(Code.BUSY, f"max_in_flight: expected at most {limit} calls at once, all are in use", field="max_in_flight")

    def _route(self, options: Options) -> tuple[int, int, int, int, int]:
        """Return (budget_us, how long the call lasts, born_us, key, flags) of a request with *options*."""
        budget_us, lasts_us, *_ = self._plain_route
        if "budget_us" in options:
            most = self.limits.max_budget_us or MAX_U64
            budget_us = checked_number(options["budget_us"], "budget_us", most=most)
            lasts_us = budget_us or lasts_us
        born_us = checked_number(options.get("born_us", 0), "born_us")
        key = checked_number(options.get("key", 0), "key", least=1 if options.get("key_policy") else 0)
        truth(options.get("copy", True), "copy")
        is_idempotent = truth(options.get("idempotent", True), "idempotent")
        return budget_us, lasts_us, born_us, key, _IDEMPOTENT if is_idempotent else 0

    def _frame(self, source: Source, options: Options) -> Frame:
        is_large = len(source) >= BY_REFERENCE_BYTES if isinstance(source, bytes) else source.nbytes >= BY_REFERENCE_BYTES
        return lent_or_copied(source, lend=is_large and not options.get("copy", True))

    # --- what comes in ---------------------------------------------------------------------------------------------------

    def welcome(self, welcome: Welcome) -> None:
        """Take over what the server says of itself."""
        self.epoch = welcome.epoch
        self.lease_access = (welcome.lease_socket, welcome.lease_token)
        if welcome.limits != self.limits:
            self.limits = welcome.limits
            self._forms.use_limits(welcome.limits)
            # The lane's default holds, unless this client would be gone before.
            is_patient = self._timeout_us >= welcome.limits.default_budget_us
            self._plain_route = (0 if is_patient else self._timeout_us, self._timeout_us, 0, 0, _IDEMPOTENT)

    def receive(self, header: bytes, rest: Sequence[Frame] = ()) -> None:
        """End the calls that one message answers.

        Args:
            rest: the frames after the first: payloads, or the other headers of a Packed message.

        Raises:
            BadReply: it is not known which call this was to answer, so that the connection cannot be trusted.
        """
        try:
            layout = self._cache.read(header)
        except RequestError as error:
            self._end_unreadable(header, error)
            return
        route = ROUTE.unpack_from(header, layout.route_at)
        if not route[6] & _PACKED:
            self._take(header, layout, route, rest)
            return
        self._take(header, layout, route, ())
        for frame in rest:
            part = bytes(frame)
            try:
                layout = self._cache.read(part)
            except RequestError as error:
                self._end_unreadable(part, error)
            else:
                self._take(part, layout, ROUTE.unpack_from(part, layout.route_at), ())

    def _take(self, header: bytes, layout: Layout, route: Sequence[int], frames: Sequence[Frame]) -> None:
        """End the call that one verified header answers, and release the frames that its request named."""
        if route[0] in self.leases.held and (route[6] & _RELEASED or is_refusal(header, route)):
            self.leases.release(route[0])
        if route[9] == _RELEASE:
            return
        call = self._calls.pop(route[0], None)
        if call is None:
            self.strays += 1
            return
        try:
            check_route(route, layout, len(frames))
            if route[9] == _INFER_REPLY == call.answer:
                outcome: Any = Result(read_outputs(layout.tensors, header, frames, self.leases.find), header, layout)
            else:
                outcome = read_rare(header, call)
        except RequestError as error:
            outcome = BadReply(f"{call.model}: not a valid reply: {error.message}")
        call.end(outcome)

    def _end_unreadable(self, header: bytes, error: RequestError) -> None:
        route = route_if_readable(header)
        call = None if route is None else self._calls.pop(route.request_id, None)
        if call is None:
            raise BadReply(f"the server sent what is no valid message: {error.message}")
        call.end(BadReply(f"{call.model}: not a valid reply: {error.message}"))

    # --- what ends by itself ---------------------------------------------------------------------------------------------

    def earliest_deadline_ns(self) -> int | None:
        """Return when the next call ends by itself, None without calls. Looks at each of them."""
        return min((call.deadline_ns for call in self._calls.values()), default=None)

    def expire(self, now_ns: int) -> None:
        """End every call whose deadline has passed."""
        for call in [call for call in self._calls.values() if call.deadline_ns <= now_ns]:
            self.expire_one(call)

    def expire_one(self, call: Pending[Any]) -> None:
        """End a call whose deadline has passed; its reply, should it still come, is a stray."""
        self.end_one(call, DeadlineExceeded(Code.DEADLINE_EXCEEDED, f"{call.model}: no answer within the call's budget"))

    def end_one(self, call: Pending[Any], outcome: object) -> None:
        """End a call with *outcome*, unless it has ended."""
        if self._calls.pop(call.request_id, None) is not None:
            call.end(outcome)

    def calls(self) -> list[Pending[Any]]:
        """Return the calls in flight, oldest first."""
        return list(self._calls.values())

    def end_all(self, outcome: Callable[[str], SlotlineError]) -> None:
        """End every call in flight with what *outcome* makes of its model's name: the connection has ended."""
        self.leases.lose()
        for call in self.calls():
            self.end_one(call, outcome(call.model))
