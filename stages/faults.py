"""Faults on demand, to prove with real processes what is promised: die, stop, stall, hang or raise at a named point of the
worker's loop, and hops that are lost, doubled or late.

``SLOTLINE_FAULT=POINT:ACTION:WHEN[:PROCESS]``, several with commas, for example ``after_write:kill:40:ticks``: each process whose
name begins with PROCESS does ACTION at each WHENth pass of POINT, or with ``1200ms`` at the first pass that is so long after its
first one or after the fault before. Each start of a process counts anew. At the point ``in_call``, inside a call into stage code,
WHEN may be ``=DIGEST``: at each call that covers a request whose input has this digest (``input_digest``). Unset (always, outside
tests and chaos runs) there is nothing to pay.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from schemas.hop import HOP
from schemas.status import Code, ConfigError, RequestError

VARIABLE = "SLOTLINE_FAULT"
IN_CALL = "in_call"
HOP_POINT = "hop"
POINTS = ("after_take", "between_check_and_write", "after_write", "after_send", IN_CALL, HOP_POINT)
# Long enough that the broker meets the stall at several ticks; some in a row are still short of what it calls hanging.
STALL_S = 0.05
# Long enough for ZeroMQ's thread to write what was sent; a kill right after the send mostly takes the message along.
FLUSH_S = 0.01
# Under load the slot has had several other lives by then.
LATE_NS = 20_000_000

Send = Callable[[bytes], None]


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_late() -> None:
    time.sleep(FLUSH_S)
    _kill()


def _hang() -> NoReturn:
    while True:
        time.sleep(1)


def _raise() -> NoReturn:
    raise RequestError(Code.MODEL_FAILED, message="a fault on demand")


_ACTIONS: dict[str, Callable[[], None]] = {
    "kill": _kill,
    "kill_late": _kill_late,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "abort": os.abort,
    "stall": lambda: time.sleep(STALL_S),
    "hang": _hang,
    "raise": _raise,
}
_HOP_ACTIONS = ("drop", "duplicate", "late")
_SLEEP = re.compile(r"sleep(\d+)ms")
_WHEN = re.compile(r"\d+(ms)?|=[0-9a-f]{16}")
_FORM = (
    f"expected POINT:ACTION:N[ms][:PROCESS], POINT of {', '.join(POINTS)}, ACTION of {', '.join(_ACTIONS)}, sleepNms, "
    f"at {HOP_POINT} of {', '.join(_HOP_ACTIONS)}; at {IN_CALL} also =DIGEST for N"
)


def input_digest(tensors: Iterable[bytes]) -> str:
    """Return the digest by which a fault knows the inputs of one request: its tensors' bytes in their order."""
    made = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        made.update(tensor)
    return made.hexdigest()


class _Fault:
    """One fault of this process."""

    def __init__(self, text: str) -> None:
        self.point, self.action, when, *target = text.split(":")
        self.target = target[0] if target else ""
        self.digest = when.removeprefix("=") if when.startswith("=") else ""
        if not self.digest:
            self.is_due = _each_ms(int(when[:-2])) if when.endswith("ms") else _each_pass(int(when))

    def strike(self) -> None:
        """Do it."""
        sleep = _SLEEP.fullmatch(self.action)
        if sleep:
            time.sleep(int(sleep[1]) / 1000)
        else:
            _ACTIONS[self.action]()


class Faults:
    """All faults of one process."""

    def __init__(self, faults: Sequence[_Fault]) -> None:
        self._faults = [fault for fault in faults if fault.point != HOP_POINT]
        self._hop_faults = [fault for fault in faults if fault.point == HOP_POINT]
        self._late: list[tuple[int, Send, bytes]] = []

    def __call__(self, here: str) -> None:
        """Strike with what is due at the point *here*."""
        for fault in self._faults:
            if fault.point == here and not fault.digest and fault.is_due():
                fault.strike()

    def call(self, inputs: Callable[[], list[str]]) -> None:
        """Strike inside a call that covers requests with these digests of their *inputs*."""
        self(IN_CALL)
        wanted = [fault for fault in self._faults if fault.digest]
        digests = inputs() if wanted else []
        for fault in wanted:
            if fault.digest in digests:
                fault.strike()

    def sender(self, send: Send) -> Send:
        """Return *send*, or what does it wrongly: the first hop of a message dropped, doubled, or sent once more much later."""
        if not self._hop_faults:
            return send

        def faulty(message: bytes) -> None:
            for fault in self._hop_faults:
                if fault.is_due():
                    message = self._change(fault.action, message, send)
            if message:
                send(message)
            self._send_late()

        return faulty

    def _change(self, action: str, message: bytes, send: Send) -> bytes:
        first = message[: HOP.size]
        if action == "drop":
            return message[HOP.size :]
        if action == "duplicate":
            return message + first
        self._late.append((time.monotonic_ns() + LATE_NS, send, first))
        return message

    def _send_late(self) -> None:
        now_ns = time.monotonic_ns()
        due = [entry for entry in self._late if entry[0] <= now_ns]
        self._late = [entry for entry in self._late if entry[0] > now_ns]
        for _, send, first in due:
            send(first)


def fault_hook(process: str, environment: Mapping[str, str] = os.environ) -> Faults | None:
    """Return the faults of this process, None when it has none.

    Raises:
        ConfigError: the variable cannot be understood.
    """
    text = environment.get(VARIABLE, "")
    faults = [_read(one) for one in text.split(",")] if text else []
    mine = [fault for fault in faults if process.startswith(fault.target)]
    return Faults(mine) if mine else None


def _read(text: str) -> _Fault:
    point, action, when = (*text.split(":"), "", "", "")[:3]
    known = action in (_HOP_ACTIONS if point == HOP_POINT else _ACTIONS) or (point != HOP_POINT and _SLEEP.fullmatch(action))
    by_digest = when.startswith("=")
    if point not in POINTS or not known or not _WHEN.fullmatch(when) or (by_digest and point != IN_CALL):
        raise ConfigError(f"{VARIABLE}={text}: {_FORM}")
    return _Fault(text)


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
