"""What requests of one key have to do with each other: Ordered, LatestOnly, LatestN. Pure; owner: the broker's main thread.

A key belongs to one client (all connections with one CURVE key are one) and one lane. Requests without a policy never come here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from schemas.status import KeyPolicy

from .admission import DEFAULT_LEVEL, Backlog
from .life import QUEUED, Request

_ORDERED = int(KeyPolicy.ORDERED)
# Where a hop came back with an answer that must wait: (code, stage).
Answer = tuple[int, int]


class Line:
    """The live requests of one key."""

    def push(self, request: Request, backlog: Backlog) -> None:
        """Take an admitted request in and give it its place in the backlog."""
        raise NotImplementedError

    def left_backlog(self, request: Request, backlog: Backlog) -> None:
        """Take note that *request* waits no longer, without having been dispatched."""

    def dispatched(self, request: Request) -> None:
        """Take note that *request* has a slot now."""

    def freed(self, backlog: Backlog) -> None:
        """Take note that a slot of this key is free."""

    def keeps(self, request: Request, answer: Answer) -> bool:
        """Return whether *answer* must wait for those of elders; if so it is kept here."""
        return False

    def leave(self, request: Request) -> Sequence[tuple[Request, Answer]]:
        """Forget a request that has ended, and return the kept ones whose turn it is now, in order."""
        return ()


class OrderedLine(Line):
    """Answers leave in the order of arrival.

    An elder is dispatched before its followers, because they stand in no better place of the backlog than it does. So an elder
    has its slot before a follower can keep one, and waits for nothing but processes: kept slots cannot block each other.
    """

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._requests: deque[Request] = deque()
        self._kept: dict[Request, Answer] = {}
        # Where the youngest stands.
        self._level = 0
        self._deadline_ns = 0

    def push(self, request: Request, backlog: Backlog) -> None:
        level, deadline_ns = request.priority or DEFAULT_LEVEL, request.deadline_ns
        if self._requests and self._requests[-1].state == QUEUED:
            level, deadline_ns = max(level, self._level), max(deadline_ns, self._deadline_ns)
        self._level, self._deadline_ns = level, deadline_ns
        self._requests.append(request)
        backlog.push(request, level, deadline_ns)

    def keeps(self, request: Request, answer: Answer) -> bool:
        if self._requests[0] is request:
            return False
        self._kept[request] = answer
        return True

    def leave(self, request: Request) -> Sequence[tuple[Request, Answer]]:
        self._kept.pop(request, None)
        self._requests.remove(request)
        turn: list[tuple[Request, Answer]] = []
        while self._requests and self._requests[0] in self._kept:
            first = self._requests.popleft()
            first.line = None
            turn.append((first, self._kept.pop(first)))
        if not self._requests:
            self._forget()
        return turn


class LatestLine(Line):
    """Only the newest wait, and few are inside the lane at once, so that what is served is fresh.

    Args:
        forget: called when the line is empty.
        at_once: how many of the key may have a slot when the client names no number: one for each replica.
    """

    def __init__(self, forget: Callable[[], None], at_once: int) -> None:
        self._forget = forget
        self._at_once = at_once
        self._limit = at_once
        self._waiting: deque[Request] = deque()
        # Of those that wait, how many have a turn in the backlog; the others are parked.
        self._offered = 0
        self._inside = 0

    def older(self, keep: int) -> list[Request]:
        """Return the waiting requests that one more makes superfluous when *keep* may wait, oldest first."""
        return list(self._waiting)[: max(0, len(self._waiting) + 1 - keep)]

    def push(self, request: Request, backlog: Backlog) -> None:
        self._limit = max(self._at_once, request.latest_n)
        self._waiting.append(request)
        backlog.park(request)
        self._offer(backlog)

    def left_backlog(self, request: Request, backlog: Backlog) -> None:
        self._waiting.remove(request)
        self._offered -= not backlog.is_parked(request)
        self._offer(backlog)

    def dispatched(self, request: Request) -> None:
        self._waiting.remove(request)
        self._offered -= 1
        self._inside += 1

    def freed(self, backlog: Backlog) -> None:
        self._inside -= 1
        self._offer(backlog)

    def _offer(self, backlog: Backlog) -> None:
        """Give turns to the oldest that wait, as many as may be inside; forget the line when nothing is left."""
        if not self._waiting and not self._inside:
            self._forget()
        for request in self._waiting:
            if self._inside + self._offered >= self._limit:
                return
            if backlog.is_parked(request):
                backlog.unpark(request)
                self._offered += 1


class KeyLines:
    """All lines of one lane.

    Args:
        replicas: of the lane's least replicated process.
    """

    def __init__(self, backlog: Backlog, *, replicas: int) -> None:
        self._backlog = backlog
        self._replicas = replicas
        self._lines: dict[tuple[bytes, int, bool], Line] = {}

    def __len__(self) -> int:
        """Return how many keys have something live."""
        return len(self._lines)

    def superseded_by(self, request: Request) -> list[Request]:
        """Return what *request*, of a Latest policy, would take the place of."""
        line = self._lines.get(_name(request))
        return line.older(request.latest_n) if isinstance(line, LatestLine) else []

    def push(self, request: Request) -> None:
        """Put an admitted request into the line of its key, and into the backlog."""
        name = _name(request)
        line = self._lines.get(name)
        if line is None:

            def forget() -> None:
                self._lines.pop(name, None)

            line = OrderedLine(forget) if request.policy == _ORDERED else LatestLine(forget, self._replicas)
            self._lines[name] = line
        request.line = line
        line.push(request, self._backlog)


def _name(request: Request) -> tuple[bytes, int, bool]:
    return request.client.fair, request.key, request.policy == _ORDERED
