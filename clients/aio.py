"""The asyncio client: as the blocking one, but calls are awaited. What messages mean is in ``session.py``.

An AsyncClient belongs to the event loop that used it first. Many thousand calls may be in flight: each is a future, none is a
task. Nothing is sent twice unless *resend* says so: when the connection or the server's life ends, every call in flight
ends with ConnectionLost, and the caller decides; the next call connects again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import zmq

from schemas.arguments import check_endpoint, check_mapping, check_requests, timeout_ns, truth
from schemas.messages import Body, Control, ControlReply, Health, HealthReply, Limits, Metadata, MetadataReply
from schemas.params import ParamValue
from schemas.status import ControlOp, HealthScope

from .aio_line import AsyncLine
from .arguments import model_text
from .calls import Options, Pending, Result
from .client import Inputs
from .errors import RAISE, SlotlineError, fail_safe
from .keys import read_keys
from .lease_socket import ask_of, take_lease
from .lease_wait import AsyncLease
from .many import Many
from .session import Outgoing

T = TypeVar("T")


class AsyncClient:
    """A connection to a Slotline server. ``async with`` connects, unless *connect* is False, and closes.

    Args:
        endpoint: such as "ipc://run/slotline.ipc" or "tcp://127.0.0.1:7000".
        timeout_s: how long connecting, and a call that names no budget, may take.
        connect: False = the first call connects, so that a client can be made before there is a server.
        resend: True = when the connection or the server's life ends, send idempotent calls again within their budgets: they run
            at least once, maybe twice, and their callers notice only the time. False: they end with ConnectionLost.
        server_key: for a server with CURVE, its public key (40 characters), or the Path of the file with it.
        key, key_file: then also this client's (public, secret), or the file with both.

    Raises:
        BadKeys: a key is missing or wrong.
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
        self._line = AsyncLine(zmq.Context.instance(), endpoint, patience_ns, keys, resend=resend)
        self._session = self._line.session
        self._connects = connect
        self._timeout_s = timeout_s

    async def __aenter__(self) -> Self:
        """Connect, and return the client; it is closed at the end of the block."""
        if self._connects:
            try:
                await self.connect()
            except BaseException:
                self.close()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        self.close()

    async def connect(self) -> None:
        """Wait until the server has answered; calls do this by themselves.

        Raises:
            ServerUnreachable: nobody answered within the client's timeout.
            Unauthorized: the server does not take this client's key, or is not the one whose key was given.
            RequestRefused: the server does not take this client.
        """
        self._line.check_owner()
        await self._line.start(self._session.await_welcome(time.monotonic_ns()))

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
    async def infer(self, model: str, inputs: Inputs, **options: Unpack[Options]) -> Result: ...

    @overload
    async def infer(
        self, model: str, inputs: Inputs, *, on_failure: Callable[[SlotlineError], T], **options: Unpack[Options]
    ) -> Result | T: ...

    @overload
    async def infer(self, model: str, inputs: Inputs, *, on_failure: T, **options: Unpack[Options]) -> Result | T: ...

    async def infer(self, model: str, inputs: Inputs, *, on_failure: Any = RAISE, **options: Unpack[Options]) -> Any:
        """Send one request and return its result; cancelling tells the server.

        Args:
            model: the lane's name.
            inputs: name -> array, list of bytes, or Encoded.
            on_failure: returned instead of raising any SlotlineError, at the latest when the budget is used up; a function is
                called with the error, and what it returns is returned.
            options: see ``Options``.

        Raises:
            SlotlineError: as ``Client.infer``.
        """
        try:
            return await self.submit(model, inputs, **options)
        except SlotlineError as error:
            return fail_safe(on_failure, error)

    def submit(self, model: str, inputs: Inputs, **options: Unpack[Options]) -> asyncio.Future[Result]:
        """Send one request and return its result to come; cancelling it tells the server.

        Raises what is found out before it is sent. Without a connection one is made, and the request is sent then; until a first
        one has told the server's limits, only the server checks the request against them.
        """
        return self._line.start(self._start(model, inputs, options))

    @overload
    async def infer_many(
        self, model: str, inputs: Sequence[Inputs], *, return_exceptions: Literal[False] = False, **options: Unpack[Options]
    ) -> list[Result]: ...

    @overload
    async def infer_many(
        self, model: str, inputs: Sequence[Inputs], *, return_exceptions: bool, **options: Unpack[Options]
    ) -> list[Result | SlotlineError]: ...

    async def infer_many(
        self, model: str, inputs: Sequence[Inputs], *, return_exceptions: bool = False, **options: Unpack[Options]
    ) -> Sequence[Result | SlotlineError]:
        """Send many requests, small ones packed, and return their results in order; see ``Client.infer_many``."""
        check_requests(inputs)
        many = Many(
            start=lambda one: self._start(model, one, options, may_pack=True),
            send=self._send_message,
            max_in_flight=self.limits.max_in_flight,
            max_bytes=self.limits.max_payload,
        )
        try:
            for one in inputs:
                while oldest := many.crowd():
                    await self._ended(oldest)
                many.add(one)
            many.flush()
            await self._ended(many.calls())
        except asyncio.CancelledError:
            for call in many.calls():
                self._line.cancel(call)
            raise
        outcomes = many.finish()
        if not return_exceptions:
            for outcome in outcomes:
                if isinstance(outcome, SlotlineError):
                    raise outcome
        return outcomes

    # --- leases ----------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def lease(self, *, frame_bytes: int = 0, frames: int = 0) -> AsyncIterator[AsyncLease]:
        """Borrow shared memory of the server for the block, for frames that are written in place; see ``Client.lease``."""
        await self.connect()
        path, ask = ask_of(self._session, frame_bytes, frames)
        # In a thread: connecting and mapping may take milliseconds.
        answer, memory = await asyncio.to_thread(take_lease, path, ask, self._timeout_s)
        lease = AsyncLease(answer, memory, self._timeout_s)
        del memory
        self._session.leases.add(lease)
        try:
            yield lease
        finally:
            self._session.leases.remove(lease)
            lease.close()

    # --- questions -------------------------------------------------------------------------------------------------------

    async def health(self) -> HealthReply:
        """Return the server's state and how much it has to do."""
        return await self._ask(Health(HealthScope.LIVE), HealthReply)

    async def ready(self, model: str | None = None) -> bool:
        """Return whether the server, or one *model*, takes requests."""
        scope = HealthScope.READY if model is None else HealthScope.MODEL_READY
        return (await self._ask(Health(scope, "" if model is None else model_text(model)), HealthReply)).ok

    async def metadata(self, model: str = "") -> MetadataReply:
        """Return what *model* takes and gives; without one, what the server is and serves."""
        return await self._ask(Metadata(model_text(model)), MetadataReply)

    async def stats(self) -> Mapping[str, ParamValue]:
        """Return the server's counters by name; answered on its control endpoint only."""
        return (await self._ask(Control(ControlOp.STATS), ControlReply)).stats

    async def _ask(self, body: Body, answer: type[T]) -> T:
        self._line.check_owner()
        reply = await self._line.start(self._session.ask(body, time.monotonic_ns()))
        assert isinstance(reply, answer), "the session takes only the kind that answers this question"
        return reply

    def _start(self, model: str, inputs: Inputs, options: Options, *, may_pack: bool = False) -> Outgoing:
        if type(inputs) is not dict:
            check_mapping(inputs)
        self._line.check_owner()
        return self._session.submit(model, inputs, options, time.monotonic_ns(), may_pack=may_pack)

    def _send_message(self, pack: Sequence[Outgoing]) -> None:
        """Send the requests of *pack* as one message: a Packed one, or a single one with its frames."""
        header, *others = [outgoing.header for outgoing in pack]
        self._line.put([outgoing.call for outgoing in pack], header, others or pack[0].frames)

    async def _ended(self, calls: Sequence[Pending[Any]]) -> None:
        """Wait until all *calls* have ended, whatever became of them."""
        for call in calls:
            if call.outcome is None:
                with contextlib.suppress(SlotlineError):
                    await self._line.future_of(call)
