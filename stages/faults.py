"""Faults on demand, to prove the ownership rule with real processes: die, stop or stall at a named point of the worker's loop.

``SLOTLINE_FAULT=POINT:ACTION:WHEN[:PROCESS]``, several with commas, for example ``after_write:kill:40:ticks``: each process whose
name begins with PROCESS does ACTION at each WHENth pass of POINT, or with ``1200ms`` at the first pass that is so long after its
first one or after the fault before. Each start of a process counts anew. Unset (always, outside tests and chaos runs) there is
nothing to pay.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping

from schemas.status import ConfigError

VARIABLE = "SLOTLINE_FAULT"
POINTS = ("after_take", "between_check_and_write", "after_write", "after_send")
# Long enough that the broker meets the stall at several ticks; some in a row are still short of what it calls hanging.
STALL_S = 0.05
# Long enough for ZeroMQ's thread to write what was sent; a kill right after the send mostly takes the message along.
FLUSH_S = 0.01


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_late() -> None:
    time.sleep(FLUSH_S)
    _kill()


_ACTIONS: dict[str, Callable[[], None]] = {
    "kill": _kill,
    "kill_late": _kill_late,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "abort": os.abort,
    "stall": lambda: time.sleep(STALL_S),
}
_FORM = f"expected POINT:ACTION:N[ms][:PROCESS], POINT of {', '.join(POINTS)}, ACTION of {', '.join(_ACTIONS)}"

Hook = Callable[[str], None]


def fault_hook(process: str, environment: Mapping[str, str] = os.environ) -> Hook | None:
    """Return the function to call at each point, or None when this process has no fault set.

    Raises:
        ConfigError: the variable cannot be understood.
    """
    text = environment.get(VARIABLE, "")
    hooks = [hook for one in text.split(",") if (hook := _hook(one, process)) is not None] if text else []
    if not hooks:
        return None

    def hit(here: str) -> None:
        for hook in hooks:
            hook(here)

    return hit


def _hook(text: str, process: str) -> Hook | None:
    """Return the hook of one fault, None when it is another process's."""
    point, action, when, target = (*text.split(":"), "", "", "", "")[:4]
    if point not in POINTS or action not in _ACTIONS or not when.removesuffix("ms").isdecimal():
        raise ConfigError(f"{VARIABLE}={text}: {_FORM}")
    if not process.startswith(target):
        return None
    is_due = _each_ms(int(when[:-2])) if when.endswith("ms") else _each_pass(int(when))

    def hit(here: str) -> None:
        if here == point and is_due():
            _ACTIONS[action]()

    return hit


def _each_pass(number: int) -> Callable[[], bool]:
    """Return a function that is true at each *number*th call."""
    passes = 0

    def is_due() -> bool:
        nonlocal passes
        passes += 1
        return passes % number == 0

    return is_due


def _each_ms(wait_ms: int) -> Callable[[], bool]:
    """Return a function that is true at the first call *wait_ms* after the very first, and after each that was true."""
    due_ns = 0

    def is_due() -> bool:
        nonlocal due_ns
        now_ns = time.monotonic_ns()
        was_due = 0 < due_ns <= now_ns
        if was_due or not due_ns:
            due_ns = now_ns + wait_ms * 1_000_000
        return was_due

    return is_due
