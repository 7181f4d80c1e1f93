"""The blocking client: numpy in, numpy out, over one DEALER socket. What messages mean is in ``session.py``.

A Client belongs to the thread that made it, which also takes replies in: they are handled whenever a call is waited for, asked
whether it is done, or made. Many calls may be in flight. Nothing is sent twice unless *resend* says so: when the connection or
the server's life ends, every call in flight ends with ConnectionLost, and the caller decides; the next call connects again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import zmq

from schemas.arguments import check_endpoint, check_mapping, check_requests, seconds, timeout_ns, truth, wrong_kind
from schemas.messages import Body, Control, ControlReply, Health, HealthReply, Limits, Metadata, MetadataReply
from schemas.params import ParamValue
from schemas.status import ControlOp, HealthScope

from .arguments import check_budget, model_text
from .calls import Options, Pending, Result
from .errors import RAISE, SlotlineError, fail_safe
from .keys import read_keys
from .lease_socket import ask_of, take_lease
from .lease_wait import BlockingLease
from .line import Line
from .many import Many
from .session import Outgoing

T = TypeVar("T")
Inputs = Mapping[str, Any]

_NS_PER_S = 1_000_000_000


class Client:
    """A connection to a Slotline server.

    Args:
        endpoint: such as "ipc://run/slotline.ipc" or "tcp://127.0.0.1:7000".
        timeout_s: how long connecting, and a call that names no budget, may take.
        connect: False = the first call connects, so that a client can be made before there is a server.
        resend: True = when the connection or the server's life ends, send idempotent calls again within their budgets: they run
            at least once, maybe twice, and their callers notice only the time. False: they end with ConnectionLost.
        server_key: for a server with CURVE, its public key (40 characters), or the Path of the file with it.
        key, key_file: then also this client's (public, secret), or the file with both.

    Raises:
        ServerUnreachable: nobody answered in time.
        Unauthorized: the server does not take this client's key, or is not the one whose key was given.
        BadKeys: a key is missing or wrong.
        RequestRefused: the server does not take this client.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        timeout_s: float = 5.0,
        connect: bool = True,
        resend: bool = False,
        server_key: str | Path = "",
        key: tuple[str, str] | None = None,
        key_file: str | Path = "",
    ) -> None:
        patience_ns = timeout_ns(timeout_s, "timeout_s")
        check_endpoint(endpoint)
        truth(connect, "connect")
        truth(resend, "resend")
        keys = read_keys(server_key, key, key_file)
        self._line = Line(zmq.Context.instance(), endpoint, patience_ns, keys, resend=resend)
        self._session = self._line.session
        self._timeout_s = timeout_s
        if connect:
            self._connect()

    def _connect(self) -> None:
        try:
            self._line.make_ready(time.monotonic_ns())
        except BaseException:
            self._line.close()
            raise

    def __enter__(self) -> Self:
        """Return the client; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """End what is in flight with Cancelled, and give the socket back."""
        self._line.close()

    @property
    def epoch(self) -> int:
        """The server's present life: another number after a reconnect means that it was restarted."""
        return self._session.epoch

    @property
    def limits(self) -> Limits:
        """What the server takes: bytes, frames, calls in flight, budgets."""
        return self._session.limits

    # --- inference -------------------------------------------------------------------------------------------------------

    @overload
    def infer(self, model: str, inputs: Inputs, **options: Unpack[Options]) -> Result: ...

    @overload
    def infer(
        self, model: str, inputs: Inputs, *, on_failure: Callable[[SlotlineError], T], **options: Unpack[Options]
    ) -> Result | T: ...

    @overload
    def infer(self, model: str, inputs: Inputs, *, on_failure: T, **options: Unpack[Options]) -> Result | T: ...

    def infer(self, model: str, inputs: Inputs, *, on_failure: Any = RAISE, **options: Unpack[Options]) -> Any:
        """Send one request and return its result.

        Args:
            model: the lane's name.
            inputs: name -> array, list of bytes, or Encoded.
            on_failure: returned instead of raising any SlotlineError, at the latest when the budget is used up; a function is
                called with the error, and what it returns is returned.
            options: see ``Options``.

        Raises:
            RequestRefused: the request is wrong, or (Busy) comes at a bad time.
            RequestFailed: the server failed at it.
            DeadlineExceeded: the budget was used up.
            ConnectionLost: the connection ended first; it may have run.
            ServerUnreachable: there is no connection and nobody answers.
        """
        try:
            return self.submit(model, inputs, **options).result()
        except SlotlineError as error:
            return fail_safe(on_failure, error)

    def submit(self, model: str, inputs: Inputs, **options: Unpack[Options]) -> Pending[Result]:
        """Send one request and return the call, to be waited for later; raises what is found out before it is sent."""
        outgoing = self._start(model, inputs, options)
        self._line.put([outgoing.call], outgoing.header, outgoing.frames)
        return outgoing.call

    @overload
    def infer_many(
        self, model: str, inputs: Sequence[Inputs], *, return_exceptions: Literal[False] = False, **options: Unpack[Options]
    ) -> list[Result]: ...

    @overload
    def infer_many(
        self, model: str, inputs: Sequence[Inputs], *, return_exceptions: bool, **options: Unpack[Options]
    ) -> list[Result | SlotlineError]: ...

    def infer_many(
        self, model: str, inputs: Sequence[Inputs], *, return_exceptions: bool = False, **options: Unpack[Options]
    ) -> Sequence[Result | SlotlineError]:
        """Send many requests, small ones packed, and return their results in order.

        At most 256 of them, or 16 MiB, are in flight at once, so that a lane's default backlog takes them.

        Args:
            return_exceptions: put what went wrong into the list; else all are finished, and then the first of them is raised.
            options: the same for all; a budget counts from the moment that its request is sent.
        """
        check_requests(inputs)
        many = Many(
            start=lambda one: self._start(model, one, options, may_pack=True),
            send=self._send_message,
            max_in_flight=self.limits.max_in_flight,
            max_bytes=self.limits.max_payload,
        )
        for one in inputs:
            many.add(one)
        outcomes = many.finish()
        if not return_exceptions:
            for outcome in outcomes:
                if isinstance(outcome, SlotlineError):
                    raise outcome
        return outcomes

    def wait(self, calls: Iterable[Pending[Any]], timeout_s: float | None = None) -> None:
        """Wait until all *calls* have ended, or *timeout_s* have passed."""
        until_ns = None if timeout_s is None else time.monotonic_ns() + int(seconds(timeout_s, "timeout_s") * _NS_PER_S)
        for call in calls:
            self._check_mine(call)
            self._line.wait(call, None if until_ns is None else max(0, until_ns - time.monotonic_ns()) / _NS_PER_S)

    def as_completed(self, calls: Iterable[Pending[T]]) -> Iterator[Pending[T]]:
        """Yield *calls* as they end."""
        waiting = list(calls)
        for call in waiting:
            self._check_mine(call)
        while waiting:
            ended = [call for call in waiting if call.outcome is not None]
            waiting = [call for call in waiting if call.outcome is None]
            yield from ended
            if waiting and not ended:
                self._line.check_owner()
                self._line.go_on(min(call.deadline_ns for call in waiting) - time.monotonic_ns())
                self._session.expire(time.monotonic_ns())

    def cancel(self, call: Pending[Any]) -> bool:
        """End *call* with Cancelled and tell the server; False when it had ended before."""
        self._line.check_owner()
        self._check_mine(call)
        header = self._session.cancel(call)
        if header is not None:
            # When the socket takes nothing now, the request's own budget ends it.
            self._line.tell(header)
        return header is not None

    def _check_mine(self, call: Pending[Any]) -> None:
        if not isinstance(call, Pending):
            raise wrong_kind("call", "what submit returned", call)
        if not call.is_waited_for_by(self._line.wait):
            raise ValueError(f"call: expected one of this client, got one to {call.model} of another")

    # --- leases ----------------------------------------------------------------------------------------------------------

    def lease(self, *, frame_bytes: int = 0, frames: int = 0) -> BlockingLease:
        """Borrow shared memory of the server, for frames that are written in place instead of sent; ``with`` gives it back.

        Args:
            frame_bytes, frames: what is needed at least, 0 = whatever the server's config says.

        Raises:
            Busy: all leases are lent.
            RequestRefused: the server lends none, or none so large.
            ServerUnreachable: its lease socket cannot be reached: another machine, or another user.
        """
        self._line.make_ready(time.monotonic_ns())
        path, ask = ask_of(self._session, frame_bytes, frames)
        lease = BlockingLease(*take_lease(path, ask, self._timeout_s), self._line, self._timeout_s)
        self._session.leases.add(lease)
        return lease

    # --- questions -------------------------------------------------------------------------------------------------------

    def health(self) -> HealthReply:
        """Return the server's state and how much it has to do."""
        return self._ask(Health(HealthScope.LIVE), HealthReply)

    def ready(self, model: str | None = None) -> bool:
        """Return whether the server, or one *model*, takes requests."""
        scope = HealthScope.READY if model is None else HealthScope.MODEL_READY
        return self._ask(Health(scope, "" if model is None else model_text(model)), HealthReply).ok

    def metadata(self, model: str = "") -> MetadataReply:
        """Return what *model* takes and gives; without one, what the server is and serves."""
        return self._ask(Metadata(model_text(model)), MetadataReply)

    def stats(self) -> Mapping[str, ParamValue]:
        """Return the server's counters by name; answered on its control endpoint only."""
        return self._ask(Control(ControlOp.STATS), ControlReply).stats

    def _ask(self, body: Body, answer: type[T]) -> T:
        now_ns = time.monotonic_ns()
        self._line.make_ready(now_ns)
        question = self._session.ask(body, now_ns)
        self._line.put([question.call], question.header, ())
        reply = question.call.result()
        assert isinstance(reply, answer), "the session takes only the kind that answers this question"
        return reply

    def _start(self, model: str, inputs: Inputs, options: Options, *, may_pack: bool = False) -> Outgoing:
        if type(inputs) is not dict:
            check_mapping(inputs)
        # Before connecting, which counts.
        now_ns = time.monotonic_ns()
        self._line.make_ready(now_ns, check_budget(options["budget_us"]) if "budget_us" in options else 0)
        return self._session.submit(model, inputs, options, now_ns, may_pack=may_pack)

    def _send_message(self, pack: Sequence[Outgoing]) -> None:
        """Send the requests of *pack* as one message: a Packed one, or a single one with its frames."""
        header, *others = [outgoing.header for outgoing in pack]
        self._line.put([outgoing.call for outgoing in pack], header, others or pack[0].frames)
