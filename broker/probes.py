"""Which hopeless requests are let through all the same. Pure; owner: the broker's main thread."""

from __future__ import annotations

from .life import Request

# Few enough to cost nothing, often enough to notice within some dozen requests that a lane has become faster.
ONE_IN = 32


class Probes:
    """Of a lane's requests that have less time left than its shortest recent runs take, one in 32 is let through.

    Without them nothing would run any more after one slow minute, and nothing would show that it is over.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._let: Request | None = None

    def lets(self, request: Request) -> bool:
        """Return whether *request* may go on; one that was let through once may, each time it is asked for."""
        if request is self._let:
            return True
        self._seen += 1
        if self._seen % ONE_IN != 1:
            return False
        self._let = request
        return True
