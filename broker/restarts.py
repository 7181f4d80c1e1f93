"""When a process that died is started again. Pure: times are ns of the monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

# First at once, then with growing patience; a process that served for a while begins anew.
BACK_OFF_NS = (0, 100_000_000, 400_000_000, 1_600_000_000, 5_000_000_000)
# Five quick deaths in half a minute: it will not come up by itself.
CRASH_LOOP_DEATHS = 5
CRASH_LOOP_NS = 30_000_000_000
# A process that was ready for this long did not die of its start. Without this, kills from outside (an operator's, a chaos
# test's) would be taken for a crash loop and close a lane that works.
SERVED_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Restart:
    """When to start again, and whether this is a crash loop by now."""

    at_ns: int
    is_crash_loop: bool


class Restarts:
    """The deaths of one process (one replica), or of the broker."""

    def __init__(self) -> None:
        self._quick: list[int] = []
        self._never_ready = 0
        self._is_looping = False

    def died(self, now_ns: int, ready_ns: int | None, *, in_call: bool = False) -> Restart:
        """Take note of a death; *ready_ns* is when that start had become ready, None if it never did.

        A death *in_call*, while stage code ran on requests, is laid to these, which are given up after two: it says nothing
        against the process, and must not close the lane for everybody else.
        """
        if in_call and ready_ns is not None:
            return Restart(now_ns + BACK_OFF_NS[1], False)
        self._never_ready = self._never_ready + 1 if ready_ns is None else 0
        if ready_ns is not None and now_ns - ready_ns >= SERVED_NS:
            self._quick.clear()
            self._is_looping = False
        else:
            self._quick.append(now_ns)
        self._quick = [at for at in self._quick if now_ns - at <= CRASH_LOOP_NS]
        # Starts that hang until they are killed are too slow for the window; five of them in a row are no better.
        if self._is_looping or max(len(self._quick), self._never_ready) >= CRASH_LOOP_DEATHS:
            # One try every half minute from here on, until one of them serves.
            self._is_looping = True
            return Restart(now_ns + CRASH_LOOP_NS, True)
        return Restart(now_ns + BACK_OFF_NS[max(len(self._quick) - 1, 0)], False)
