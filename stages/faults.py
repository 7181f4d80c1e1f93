"""Faults on demand, to prove the ownership rule with real processes: die or stop at a named point of the worker's loop.

``SLOTLINE_FAULT=POINT:ACTION:N[:PROCESS]``, for example ``after_write:kill:40:ticks``: each process whose name begins with
PROCESS does ACTION at its Nth pass of POINT. Unset (always, outside tests and chaos runs) there is nothing to pay.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping

from schemas.status import ConfigError

VARIABLE = "SLOTLINE_FAULT"
POINTS = ("after_take", "between_check_and_write", "after_write", "after_send")
_ACTIONS: dict[str, Callable[[], None]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "abort": os.abort,
}


def fault_hook(process: str, environment: Mapping[str, str] = os.environ) -> Callable[[str], None] | None:
    """Return the function to call at each point, or None when this process has no fault set.

    Raises:
        ConfigError: the variable cannot be understood.
    """
    text = environment.get(VARIABLE, "")
    if not text:
        return None
    point, action, number, target = (*text.split(":"), "", "", "", "")[:4]
    if point not in POINTS or action not in _ACTIONS or not number.isdecimal():
        raise ConfigError(f"{VARIABLE}={text}: expected POINT:ACTION:N[:PROCESS], POINT of {', '.join(POINTS)}")
    if not process.startswith(target):
        return None
    left = int(number)

    def hit(here: str) -> None:
        nonlocal left
        left -= here == point
        if here == point and left == 0:
            _ACTIONS[action]()

    return hit
