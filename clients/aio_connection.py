"""A connection that the event loop watches: what arrives goes to the session. Owned by the event loop of its client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from .connection import LINGER_MS, Connection
from .errors import BadReply
from .session import Frame, Session

# Taken in one go; then the loop's other work has its turn.
MESSAGES_PER_TURN = 256


class AsyncConnection:
    """Brings messages to *session* as they come, without a task.

    ZeroMQ's descriptor tells of news since the socket was last looked at, and sending may swallow some. So it is read until it is
    empty, or nothing is in flight; and looked at once more before the loop sleeps whenever something was sent.

    Args:
        on_turn: called when messages were taken, or the socket may have room again.
        on_end: called with the reason when the connection has ended, or cannot be trusted; it closes this object.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        session: Session,
        *,
        on_turn: Callable[[], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.connection = connection
        self._loop = loop
        self._session = session
        self._on_turn = on_turn
        self._on_end = on_end
        self._will_look = False
        self._is_open = True
        self._descriptors = connection.descriptors
        for descriptor, react in zip(self._descriptors, (self.take, self._see_end), strict=True):
            loop.add_reader(descriptor, react)
        # There is no news of a socket that nobody has looked at yet.
        loop.call_soon(self._see_end)

    def send(self, header: bytes, frames: Sequence[Frame]) -> bool:
        """Send one message without waiting; False when the socket takes none now."""
        if self.connection.send(header, frames):
            self._look_soon()
            return True
        # From here on the descriptor tells when there is room, unless there is some by now.
        if any(self.connection.look()):
            self._look_soon()
        return False

    def _look_soon(self) -> None:
        if not self._will_look:
            self._will_look = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._will_look = False
        if not self._is_open:
            return
        has_message, has_room = self.connection.look()
        if has_message:
            self.take()
        elif has_room:
            self._on_turn()

    def take(self) -> None:
        """Give the session the messages that have arrived."""
        if not self._is_open:
            return
        # Without a call in flight only strays come; but looking is what quiets the descriptor.
        has_message = self._session.expects_messages or self.connection.look()[0]
        if has_message and self._receive(MESSAGES_PER_TURN):
            self._on_turn()

    def _receive(self, limit: int) -> bool:
        """Take up to *limit* messages; False when that was the connection's end."""
        receive, session = self.connection.receive, self._session
        try:
            for _ in range(limit):
                message = receive()
                if message is None:
                    return True
                session.receive(*message)
                if not session.expects_messages:
                    return True
        except BadReply as error:
            self._on_end(str(error))
            return False
        self._loop.call_soon(self.take)
        return True

    def _see_end(self) -> None:
        """See whether the connection has ended; what came before the end is not lost."""
        if self._is_open and self.connection.has_ended() and self._receive(1 << 30):
            self._on_end(self.connection.end)

    def close(self, *, linger_ms: int = LINGER_MS) -> None:
        """Give the socket back."""
        self._is_open = False
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)
        self.connection.close(linger_ms=linger_ms)
