"""The asyncio client's line to the server: one connection at a time, and what waits for it. Owned by its client's event loop.

Messages are sent at once; those that the socket does not take now, and those made while there is no connection, are held. One
timer ends what is late.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import zmq

from schemas.status import Code

from .aio_calls import AsyncPending, CallFuture
from .aio_connection import AsyncConnection
from .calls import Pending
from .connection import CUT_SHORT, Connection
from .errors import (
    Cancelled,
    ConnectionLost,
    DeadlineExceeded,
    ServerUnreachable,
    SlotlineError,
    connection_lost,
    unauthorized,
    unreachable,
)
from .keys import Keys
from .line import MAX_CUT_SHORT, RETRY_S
from .resend import again, lose, not_taken_again, note
from .session import Frame, Outgoing, Session

# The late are looked for among all calls (40 ns each), so not more often than this, or 10,000 late ones would take all the time.
PAUSE_PER_CALL_NS = 1_000
_NS_PER_S = 1_000_000_000


class AsyncLine:
    """Moves messages while there is a connection, and makes one when a call needs it.

    Args:
        timeout_ns: how long connecting may take, and a call that names no budget.
        keys: for a server with CURVE.
        resend: send idempotent calls again on the next connection when theirs ends.

    Attributes:
        session: what the messages mean.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, timeout_ns: int, keys: Keys | None, *, resend: bool = False
    ) -> None:
        self.session = Session(timeout_us=max(1, timeout_ns // 1000), wait=_never_wait, pending=AsyncPending)
        self._context = context
        self._endpoint = endpoint
        self._timeout_us = max(1, timeout_ns // 1000)
        self._keys = keys
        self._resends = resend
        self._owner: asyncio.AbstractEventLoop | None = None
        self._connection: AsyncConnection | None = None
        # Of a connection whose server has not answered yet.
        self._hello: Pending[Any] | None = None
        self._held: deque[tuple[Sequence[Pending[Any]], bytes, Sequence[Frame]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._retry: asyncio.TimerHandle | None = None
        self._cut_short = 0
        self._why = ""
        self._is_closed = False

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        assert self._owner is not None, "whatever is called here comes after check_owner"
        return self._owner

    def check_owner(self) -> None:
        """Raise RuntimeError outside the event loop that used the client first, and when the client is closed."""
        if self._is_closed:
            raise RuntimeError("the client is closed: make another one")
        loop = asyncio.get_running_loop()
        if self._owner is None:
            self._owner = loop
        elif self._owner is not loop:
            raise RuntimeError("an AsyncClient belongs to the event loop that used it first: make one in each loop")

    def close(self) -> None:
        """End what is in flight with Cancelled, and give the socket back."""
        self._is_closed = True
        self._held.clear()
        self.session.end_all(lambda model: Cancelled(Code.CANCELLED, f"{model}: the client was closed"))
        for handle in (self._timer, self._retry):
            if handle is not None:
                handle.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- calls -----------------------------------------------------------------------------------------------------------

    def start(self, outgoing: Outgoing) -> CallFuture[Any]:
        """Send what starts a call, and return its future."""
        future = self.future_of(outgoing.call)
        self.put([outgoing.call], outgoing.header, outgoing.frames)
        return future

    def future_of(self, call: Pending[Any]) -> CallFuture[Any]:
        """Return a future for *call*, which is in flight."""
        assert isinstance(call, AsyncPending), "the session was told to make these"
        future: CallFuture[Any] = CallFuture(loop=self._loop)
        call.future = future
        future.watch(call, self.cancel)
        return future

    def put(self, calls: Sequence[Pending[Any]], header: bytes, frames: Sequence[Frame]) -> None:
        """Send one message that starts *calls*, now or when there is a connection that takes it."""
        deadline_ns = calls[0].deadline_ns
        if self._timer is None or deadline_ns < self._timer_ns:
            self._set_timer(deadline_ns)
        if self._resends:
            note(calls, header, frames)
        connection = self._connection
        if connection is not None and self._hello is None and not self._held and header and connection.send(header, frames):
            return
        self._held.append((calls, header, frames))
        if self._hello is None and (connection is None or len(self._held) == 1):
            self._send_held()

    def cancel(self, call: Pending[Any]) -> None:
        """End *call* with Cancelled and tell the server."""
        header = self.session.cancel(call)
        if header is not None and self._connection is not None and self._hello is None:
            # When the socket takes nothing now, the request's own budget ends it.
            self._connection.send(header, ())

    # --- what is held ----------------------------------------------------------------------------------------------------

    def _send_held(self) -> None:
        """Send what was held, as far as the socket takes it; without a connection, see to one."""
        if self._connection is None:
            if self._held and self._retry is None:
                self._open()
            return
        while self._held and self._hello is None:
            calls, header, frames = self._held[0]
            if not header:
                self.session.end_one(calls[0], True)
            elif not _is_wanted(calls):
                self._drop_unsent(calls)
            elif not self._connection.send(header, frames):
                return
            self._held.popleft()

    def _drop_unsent(self, calls: Sequence[Pending[Any]]) -> None:
        """Let go of what calls need that ended before they were sent: the server will not say that it is done with it."""
        for call in calls:
            self.session.leases.release(call.request_id)

    def _end_held(self, error: SlotlineError) -> None:
        """End what was held with *error*: it was never sent."""
        held, self._held = self._held, deque()
        for calls, _, _ in held:
            for call in calls:
                self.session.end_one(call, error)

    # --- what is late ----------------------------------------------------------------------------------------------------

    def _set_timer(self, at_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = at_ns
        self._timer = self._loop.call_later(max(0, at_ns - time.monotonic_ns()) / _NS_PER_S, self._on_timer)

    def _on_timer(self) -> None:
        """End the calls that are late, after what has arrived was taken."""
        self._timer = None
        if self._connection is not None:
            self._connection.take()
        now_ns = time.monotonic_ns()
        if self._connection is None or self._hello is not None:
            for call in [call for calls, _, _ in self._held for call in calls if call.deadline_ns <= now_ns]:
                late = not_taken_again(self._endpoint, call) if call.lost else unreachable(self._endpoint, "in time", self._why)
                self.session.end_one(call, late)
        self.session.expire(now_ns)
        for calls, _, _ in self._held:
            if not _is_wanted(calls):
                self._drop_unsent(calls)
        self._held = deque(entry for entry in self._held if _is_wanted(entry[0]))
        earliest_ns = self.session.earliest_deadline_ns()
        if earliest_ns is not None:
            self._set_timer(max(earliest_ns, now_ns + PAUSE_PER_CALL_NS * self.session.in_flight))

    # --- connections -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open a connection and greet the server."""
        try:
            connection = Connection(self._context, self._endpoint, self._keys)
        except ServerUnreachable as error:
            self._end_held(error)
            return
        self._connection = AsyncConnection(self._loop, connection, self.session, on_turn=self._send_held, on_end=self._on_end)
        hello = self.session.hello(time.monotonic_ns(), timeout_us=self._timeout_us)
        self._hello = hello.call
        self.future_of(hello.call).add_done_callback(self._on_welcome)
        self._connection.send(hello.header, hello.frames)

    def _on_welcome(self, hello: asyncio.Future[Any]) -> None:
        """Go on with what the server, or nobody, has answered to the Hello."""
        self._hello = None
        try:
            self.session.welcome(hello.result())
            self._cut_short, self._why = 0, ""
        except ConnectionLost as error:
            self._why = str(error)
            if self._cut_short < MAX_CUT_SHORT:
                self._retry = self._loop.call_later(RETRY_S, self._try_again)
                return
            self._end_held(unauthorized(self._endpoint, CUT_SHORT))
        except DeadlineExceeded:
            # What listens there does not answer: the next connection may reach a better one.
            self._drop()
        except SlotlineError as error:
            self._drop()
            self._end_held(error)
        self._send_held()

    def _try_again(self) -> None:
        self._retry = None
        self._send_held()

    def _on_end(self, reason: str) -> None:
        """Forget a connection that has ended, and what is in flight on it; what was not sent yet waits for the next one."""
        assert self._connection is not None, "it is the one that has ended"
        ended = self._connection.connection
        self._cut_short = self._cut_short + 1 if ended.was_cut_short else 0
        self._drop()

        def lost(model: str) -> SlotlineError:
            if ended.refusal:
                return unauthorized(self._endpoint, ended.refusal)
            return connection_lost(self._endpoint, model, reason)

        if self._hello is not None:
            self.session.end_one(self._hello, lost("hello"))
            return
        self._held.clear()
        if ended.refusal:
            self.session.end_all(lost)
            return
        now_ns = time.monotonic_ns()
        self._held.extend(([call], *again(call, now_ns)) for call in lose(self.session, lost, reason, now_ns))
        if self._held:
            self._send_held()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close(linger_ms=0)
            self._connection = None


def _is_wanted(calls: Sequence[Pending[Any]]) -> bool:
    """True while one of *calls* has not ended."""
    return any(call.outcome is None for call in calls)


def _never_wait(call: Pending[Any], timeout_s: float | None) -> None:
    """Be the wait of calls that are awaited instead."""
