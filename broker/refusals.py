"""Why a request is not taken, and when it may come again. Pure; owner: the broker's main thread."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.status import Code

from .lanes import Lane
from .life import Client, Request


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not taken."""

    code: Code
    retry_after_us: int = 0
    message: str = ""


def too_short(request: Request, now_ns: int) -> str:
    """Return what a client is told whose request cannot be finished in the time that it has left."""
    left_us, lane = (request.deadline_ns - now_ns) // 1000, request.lane
    return f"{left_us} us are left, and lane {lane.plan.name} takes {lane.window.path_ns / 1000:.0f} us at least"


def busy(lane: Lane, client: Client, payload_bytes: int, salt: int) -> Refusal:
    """Say which limit is reached, and when to come again; hints with different *salt* are spread."""
    if lane.backlog.has_room(payload_bytes):
        reason = f"{len(client.in_flight) + client.orphans} requests of this client are in flight, server.max_in_flight"
    else:
        reason = f"the backlog of lane {lane.plan.name} is full: {lane.backlog.count} requests, {lane.backlog.bytes} bytes"
    return Refusal(Code.BUSY, _retry_after_us(lane, salt), reason)


def _retry_after_us(lane: Lane, salt: int) -> int:
    """Return what the backlog is worth, +-25 % so that refused clients do not come back together."""
    spread = 0.75 + (salt * 2654435761 % 4096) / 8192
    return int(lane.window.backlog_ns(lane.backlog.count + 1) * spread / 1000) or 1
