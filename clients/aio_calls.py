"""A call of the asyncio client: what the session ends, and the future that its caller awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from schemas.status import Kind

from .calls import Pending, Wait
from .errors import SlotlineError

T = TypeVar("T")


class CallFuture(asyncio.Future[T]):
    """The result to come of one call. Cancelling it, or the task that awaits it, tells the server."""

    __slots__ = ("_pending", "_tell")

    def watch(self, pending: Pending[Any], tell: Callable[[Pending[Any]], None]) -> None:
        """Stand for *pending*; *tell* is called with it when the caller wants it no longer."""
        self._pending = pending
        self._tell = tell

    def cancel(self, msg: Any = None) -> bool:
        """End the call now; False when it had ended before."""
        if not super().cancel(msg):
            return False
        self._tell(self._pending)
        return True


class AsyncPending(Pending[T]):
    """A call in flight, whose end ends a future where somebody awaits it; many need none."""

    __slots__ = ("future",)

    def __init__(self, request_id: int, model: str, deadline_ns: int, answer: Kind, wait: Wait) -> None:
        super().__init__(request_id, model, deadline_ns, answer, wait)
        self.future: asyncio.Future[T] | None = None

    def end(self, outcome: T | SlotlineError) -> None:
        """Let the call, and its future, end with *outcome*."""
        self.outcome = outcome
        # Not kept: call and future would hold each other until the garbage collector runs.
        future, self.future = self.future, None
        if future is None or future.done():
            return
        if isinstance(outcome, SlotlineError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
