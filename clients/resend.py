"""Sending a call again after its connection, or its server's life, has ended. Pure: the lines move the messages.

Only idempotent inferences are, and only by clients that were told to (``resend=True``): such a request runs at least once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from schemas.status import Flag, Kind
from schemas.verify import find_route

from .calls import Pending
from .errors import ConnectionLost, SlotlineError, connection_lost
from .session import Frame, Session

_INFER_REPLY = Kind.INFER_REPLY
_IDEMPOTENT = int(Flag.IDEMPOTENT)
# In the Route.
_BUDGET_AT, _FLAGS_AT = 8, 40
_NS_PER_US = 1_000


def note(calls: Sequence[Pending[Any]], header: bytes, frames: Sequence[Frame]) -> None:
    """Remember what starts *calls*, as far as it may run twice.

    Args:
        frames: payloads of the one call, or the headers of the others of a Packed message.
    """
    parts = [(header, frames)] if len(calls) == 1 else [(header, ()), *((bytes(other), ()) for other in frames)]
    for call, (part, payload) in zip(calls, parts, strict=True):
        at = find_route(part) if call.answer == _INFER_REPLY else None
        if at is not None and part[at + _FLAGS_AT] & _IDEMPOTENT:
            call.again = (part, payload)


def lose(session: Session, outcome: Callable[[str], SlotlineError], reason: str, now_ns: int) -> list[Pending[Any]]:
    """End the calls in flight on a connection that has ended, but those that may be sent again; return these, oldest first.

    Those that name frames of a lease cannot be: it has ended with the connection.
    """
    kept: list[Pending[Any]] = []
    leased = set(session.leases.held)
    session.leases.lose()
    for call in session.calls():
        if call.again is not None and call.deadline_ns > now_ns and call.request_id not in leased:
            call.lost = reason
            kept.append(call)
        else:
            session.end_one(call, outcome(call.model))
    return kept


def again(call: Pending[Any], now_ns: int) -> tuple[bytes, Sequence[Frame]]:
    """Return the message that starts *call* once more, with the budget that is left of a budget that was named."""
    assert call.again is not None, "only what was noted is sent again"
    header, frames = call.again
    at = find_route(header)
    assert at is not None
    (budget_us,) = struct.unpack_from("<Q", header, at + _BUDGET_AT)
    if not budget_us:
        return header, frames
    left_us = max(1, min(budget_us, (call.deadline_ns - now_ns) // _NS_PER_US))
    return header[: at + _BUDGET_AT] + struct.pack("<Q", left_us) + header[at + _BUDGET_AT + 8 :], frames


def not_taken_again(endpoint: str, call: Pending[Any]) -> ConnectionLost:
    """Return the error of a call that no server took again within its budget: it may have run."""
    return connection_lost(endpoint, call.model, f"{call.lost}, and no server took it again within its budget,")
