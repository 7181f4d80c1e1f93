"""Who is suspected of killing processes, and who may run again after a death. Pure; owner: the broker's main thread."""

from __future__ import annotations

from schemas.status import Code

from . import life
from .lanes import Lane
from .life import Request

# A request whose holders died this often, without it being in their running call, is given up: something else is wrong.
MAX_RETRIES = 5
# A request in the running call of this many dying processes is what kills them.
MAX_MARKS = 2


def mark_running_call(lane: Lane, incarnation: int, rows: int) -> set[Request]:
    """Mark the requests of the call in which a reaped process died, and return them; each will run alone.

    Args:
        rows: how many (slot, generation) pairs that call had. A slot that was condemned since is one generation further.
    """
    slots, marked = lane.slots, set()
    for slot, generation in slots.running_call(incarnation, rows):
        request = slots.requests[slot] if slot < slots.count else None
        if request is None:
            continue
        lives = 1 if request.state in (life.CONDEMNED, life.CONDEMNED_ORPHAN) else 0
        if slots.generations[slot] == (generation + lives) & 0xFFFFFFFF:
            request.marks += 1
            request.lone = True
            marked.add(request)
    return marked


def why_not_again(request: Request) -> tuple[Code, str] | None:
    """Return the code and reason for which a request whose process died ends; None when it may run again."""
    if request.marks >= MAX_MARKS:
        return Code.QUARANTINED, f"{request.marks} processes died while they ran it"
    if not request.idempotent:
        return Code.STAGE_DIED, "its process died, and it may not run twice"
    if request.retries > MAX_RETRIES:
        return Code.STAGE_DIED, f"{request.retries} processes died that held it"
    return None
