"""A line to the server: one connection at a time, and the session whose messages it moves. Owned by the thread of its client."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import zmq

from schemas.status import Code

from .calls import Pending
from .connection import CUT_SHORT, Connection
from .errors import (
    BadReply,
    Cancelled,
    ConnectionLost,
    DeadlineExceeded,
    ServerUnreachable,
    Unauthorized,
    connection_lost,
    unauthorized,
    unreachable,
)
from .keys import Keys
from .resend import again, lose, not_taken_again, note
from .session import Frame, Session

# Between two tries of a server that ends each connection.
RETRY_S = 0.05
# So many handshakes in a row that the server breaks off are no accident: it cannot read what is encrypted for another key.
MAX_CUT_SHORT = 3
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000


class Line:
    """Moves messages while there is a connection, and makes one when a call needs it.

    Args:
        timeout_ns: how long connecting may take, and a call that names no budget.
        keys: for a server with CURVE.
        resend: send idempotent calls again on the next connection when theirs ends.

    Attributes:
        session: what the messages mean.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        timeout_ns: int,
        keys: Keys | None = None,
        *,
        resend: bool = False,
    ) -> None:
        self.session = Session(timeout_us=max(1, timeout_ns // 1000), wait=self.wait)
        self._context = context
        self._endpoint = endpoint
        self._timeout_ns = timeout_ns
        self._keys = keys
        self._resends = resend
        self._owner = threading.get_ident()
        self._connection: Connection | None = None
        # Of a connection whose server has not answered yet.
        self._hello: Pending[Any] | None = None
        self._cut_short = 0
        self._is_closed = False

    def close(self) -> None:
        """End what is in flight with Cancelled, and give the socket back."""
        self._is_closed = True
        self.session.end_all(lambda model: Cancelled(Code.CANCELLED, f"{model}: the client was closed"))
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def tell(self, header: bytes) -> None:
        """Send a message without an answer, if it can be sent at once."""
        if self._connection is not None:
            self._connection.send(header, ())

    def put(self, calls: Sequence[Pending[Any]], header: bytes, frames: Sequence[Frame]) -> None:
        """Send one message that starts *calls*; when the socket is full, take replies until it is not, or the calls end."""
        while calls[-1].outcome is None:
            if self._connection is None:
                # Lost while it was full, with calls that another message of theirs starts again.
                return
            if self._connection.send(header, frames):
                if self._resends:
                    note(calls, header, frames)
                return
            left_ns = calls[-1].deadline_ns - time.monotonic_ns()
            if left_ns <= 0:
                for call in calls:
                    self.session.expire_one(call)
                    self.session.leases.release(call.request_id)
                return
            self.turn(left_ns, to_send=True)

    def wait(self, call: Pending[Any], timeout_s: float | None) -> None:
        """Take replies until *call* has ended or the time is up; see ``calls.Wait``."""
        self.check_owner()
        until_ns = call.deadline_ns
        if timeout_s is not None:
            until_ns = min(until_ns, time.monotonic_ns() + int(timeout_s * _NS_PER_S))
        while call.outcome is None:
            left_ns = until_ns - time.monotonic_ns()
            # Also when the time is up: what has arrived counts.
            if call.lost:
                self.go_on(left_ns)
            else:
                self.turn(left_ns)
            if left_ns <= 0:
                if call.deadline_ns <= until_ns:
                    self._expire(call)
                return

    def go_on(self, wait_ns: int) -> None:
        """Take replies, or connect again for the calls that another connection has lost."""
        if self._connection is None or self._hello is not None:
            self._send_again(max(wait_ns, _NS_PER_MS))
        else:
            self.turn(wait_ns)

    def turn(self, wait_ns: int, *, to_send: bool = False) -> None:
        """Wait for something to happen, then take all replies that are there."""
        connection, session = self._connection, self.session
        if connection is None:
            return
        connection.poll(max(0, -(-wait_ns // _NS_PER_MS)), to_send=to_send)
        # Read before the last messages are taken: those that came before the end are not lost.
        end = connection.end
        try:
            while session.expects_messages and (message := connection.receive()) is not None:
                session.receive(*message)
        except BadReply as error:
            end = str(error)
        if connection.refusal:
            self.session.end_all(lambda _: unauthorized(self._endpoint, connection.refusal))
            self._drop_connection()
        elif end:
            self._cut_short = self._cut_short + 1 if connection.was_cut_short else 0
            self._lose(end)

    def _lose(self, reason: str) -> None:
        """End the connection and what is in flight on it, but what is to be sent again."""
        lose(self.session, lambda model: connection_lost(self._endpoint, model, reason), reason, time.monotonic_ns())
        self._drop_connection()

    def _expire(self, call: Pending[Any]) -> None:
        """End a call whose deadline has passed."""
        if call.lost and (self._connection is None or self._hello is not None):
            self.session.end_one(call, not_taken_again(self._endpoint, call))
        else:
            self.session.expire_one(call)

    def _send_again(self, left_ns: int) -> None:
        """Connect within the time that is left, which sends the lost calls again; without a server just let it pass."""
        try:
            self._connect(left_ns)
        except Unauthorized as error:
            refusal = error
            self.session.end_all(lambda _: refusal)
        except ServerUnreachable:
            return

    def _resend_lost(self) -> None:
        """Send what another connection has lost, in the old order."""
        for call in self.session.calls():
            if call.lost and call.again is not None:
                self.put([call], *again(call, time.monotonic_ns()))

    def _drop_connection(self) -> None:
        if self._hello is not None:
            self.session.expire_one(self._hello)
            self._hello = None
        if self._connection is not None:
            self._connection.close(linger_ms=0)
            self._connection = None

    def make_ready(self, now_ns: int, budget_us: int | None = None) -> None:
        """See that there is a connection, and room for a call.

        Args:
            budget_us: of the call that needs it; connecting takes no longer.

        Raises:
            ServerUnreachable: nobody answers.
            RuntimeError: the client is closed, or another thread's.
        """
        self.check_owner()
        if self._is_closed:
            raise RuntimeError("the client is closed: make another one")
        # Looked at before each call (2 us), so that a server's restart costs an idle client none.
        if self._connection is not None and self._connection.has_ended():
            self.turn(0)
        if self._connection is None or self._hello is not None:
            self._connect(min(self._timeout_ns, budget_us * 1000) if budget_us else self._timeout_ns)
        if self.session.is_full:
            self.turn(0)
            self.session.expire(now_ns)

    def _connect(self, timeout_ns: int) -> None:
        """Wait for the server's answer to a Hello until the time is up.

        What is begun by then goes on: the next call finds it further, so that a server is also reached by calls whose budgets are
        shorter than connecting takes.
        """
        until_ns = time.monotonic_ns() + timeout_ns
        why = ""
        while (left_ns := until_ns - time.monotonic_ns()) > 0:
            try:
                hello = self._hello or self._say_hello()
                self.session.welcome(hello.result(left_ns / _NS_PER_S))
                self._hello = None
                self._resend_lost()
                return
            except ConnectionLost as error:
                why = str(error)
                if self._cut_short >= MAX_CUT_SHORT:
                    raise unauthorized(self._endpoint, CUT_SHORT) from None
                time.sleep(min(RETRY_S, max(0, until_ns - time.monotonic_ns()) / _NS_PER_S))
            except DeadlineExceeded:
                # What listens there does not answer: the next connection may reach a better one.
                self._drop_connection()
            except TimeoutError:
                break
            except BaseException:
                self._drop_connection()
                raise
        raise unreachable(self._endpoint, f"within {timeout_ns / _NS_PER_S:g} s", why)

    def _say_hello(self) -> Pending[Any]:
        """Open a connection and greet the server; the answer is waited for as long as the client's own timeout."""
        self._connection = Connection(self._context, self._endpoint, self._keys)
        hello = self.session.hello(time.monotonic_ns(), timeout_us=max(1, self._timeout_ns // 1000))
        self._hello = hello.call
        self.put([hello.call], hello.header, hello.frames)
        return hello.call

    def check_owner(self) -> None:
        """Raise RuntimeError in a thread that is not the client's."""
        if threading.get_ident() != self._owner:
            raise RuntimeError("a Client belongs to the thread that made it: make one in each thread")
