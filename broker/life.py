"""The life of a request as a table: every state, every event, and where it leads. The diagram in docs is drawn from it.

Pure data and one value class. What the events *do* is ``core.py``'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .key_lines import Line
    from .lanes import Lane
    from .leases import Held

# States. QUEUED waits for a slot in the backlog; WAITING has a slot and waits for a process; HELD is with the stages; KEPT is
# back from them and waits for an elder of its Ordered key; CONDEMNED had its holder die and waits until nobody can touch the
# slot. ORPHAN and CONDEMNED_ORPHAN are HELD and CONDEMNED, already answered.
QUEUED, WAITING, HELD, KEPT, ORPHAN, CONDEMNED, CONDEMNED_ORPHAN, DONE = range(8)
STATE_NAMES = ("QUEUED", "WAITING", "HELD", "KEPT", "ORPHAN", "CONDEMNED", "CONDEMNED_ORPHAN", "DONE")

# Events.
(DISPATCH, RETURN_OK, RETURN_ERROR, KEEP, RELEASE, NO_REPLICA, EXPIRE, CANCEL, GONE, REAPED, GIVE_UP, QUIET, SUPERSEDE,
 DRAIN) = range(14)  # fmt: skip
EVENT_NAMES = (
    "dispatch", "return_ok", "return_error", "return_before_elder", "elder_gone", "no_replica", "expire", "cancel", "gone",
    "reaped", "give_up", "quiet", "superseded", "drain",
)  # fmt: skip

# (state, event) -> state. What is not here cannot happen; reaching for it is a fault of ours and ends the broker.
# "admit" leads to QUEUED; a refusal never becomes a request.
TRANSITIONS: dict[tuple[int, int], int] = {
    (QUEUED, DISPATCH): HELD,
    (QUEUED, EXPIRE): DONE,
    (QUEUED, CANCEL): DONE,
    (QUEUED, GONE): DONE,
    (QUEUED, SUPERSEDE): DONE,
    (QUEUED, DRAIN): DONE,
    (WAITING, DISPATCH): HELD,
    (WAITING, EXPIRE): DONE,
    (WAITING, CANCEL): DONE,
    (WAITING, GONE): DONE,
    (WAITING, DRAIN): DONE,
    (HELD, RETURN_OK): DONE,
    (HELD, RETURN_ERROR): DONE,
    (HELD, KEEP): KEPT,
    (HELD, NO_REPLICA): WAITING,
    (HELD, EXPIRE): ORPHAN,
    (HELD, CANCEL): ORPHAN,
    (HELD, GONE): ORPHAN,
    (HELD, DRAIN): ORPHAN,
    (HELD, REAPED): CONDEMNED,
    (KEPT, RELEASE): DONE,
    (KEPT, EXPIRE): DONE,
    (KEPT, CANCEL): DONE,
    (KEPT, GONE): DONE,
    (KEPT, DRAIN): DONE,
    (ORPHAN, RETURN_OK): DONE,
    (ORPHAN, RETURN_ERROR): DONE,
    (ORPHAN, NO_REPLICA): DONE,
    (ORPHAN, REAPED): CONDEMNED_ORPHAN,
    (CONDEMNED, EXPIRE): CONDEMNED_ORPHAN,
    (CONDEMNED, CANCEL): CONDEMNED_ORPHAN,
    (CONDEMNED, GONE): CONDEMNED_ORPHAN,
    (CONDEMNED, DRAIN): CONDEMNED_ORPHAN,
    (CONDEMNED, GIVE_UP): CONDEMNED_ORPHAN,
    (CONDEMNED, QUIET): WAITING,
    (CONDEMNED_ORPHAN, QUIET): DONE,
}

# The same table for the hot path: TABLE[state][event], -1 = impossible.
TABLE = tuple(
    tuple(TRANSITIONS.get((state, event), -1) for event in range(len(EVENT_NAMES))) for state in range(len(STATE_NAMES))
)

# States in which the request has a slot, and those in which its client still waits for an answer.
WITH_SLOT = frozenset({WAITING, HELD, KEPT, ORPHAN, CONDEMNED, CONDEMNED_ORPHAN})
WITH_STAGES = frozenset({HELD, ORPHAN, CONDEMNED, CONDEMNED_ORPHAN})
LIVE = frozenset({QUEUED, WAITING, HELD, KEPT, CONDEMNED})


@dataclass(slots=True, eq=False)
class Client:
    """One connection: its requests in flight by the client's own ids, its orphans (answered, still in a slot), its leases.

    *received* and *finals*, by code, are its part of the ledger. *fair* is whose turn its requests take: the connection's own, or
    its key's, shared by all connections of that key. *barred* is why nothing more is taken from it, "" as long as it is welcome.
    *lease_token* is what its Welcome told it, "" before.
    """

    identity: bytes
    in_flight: dict[int, Request] = field(default_factory=dict)
    orphans: int = 0
    packed_replies: bool = False
    delimiter: bool = False
    gone: bool = False
    received: int = 0
    finals: dict[int, int] = field(default_factory=dict)
    name: str = ""
    fair: bytes = b""
    barred: str = ""
    leases: int = 0
    lease_token: str = ""

    def __post_init__(self) -> None:
        """Give the connection a turn of its own when it has no key."""
        self.fair = self.fair or self.identity


@dataclass(slots=True, eq=False)
class Request:
    """One accepted request. The shell's part (*payload*) is not looked at here; times are ns of the monotonic clock.

    *leases* are the frames of leases that it uses, until no stage can read them any more.
    *policy* is what *key* means (a ``KeyPolicy``, 0 = nothing); *line* then is what it shares with the others of its key.
    """

    ticket: int
    client: Client
    request_id: int
    lane: Lane
    deadline_ns: int
    arrived_ns: int
    payload: object
    payload_bytes: int = 0
    rows: int = 1
    priority: int = 0
    born_us: int = 0
    key: int = 0
    idempotent: bool = False
    policy: int = 0
    latest_n: int = 0
    state: int = QUEUED
    slot: int = -1
    stage: int = 0
    marks: int = 0
    retries: int = 0
    no_replica: int = 0
    lone: bool = False
    dispatched_ns: int = 0
    line: Line | None = None
    leases: tuple[Held, ...] = ()

    def step(self, event: int) -> int:
        """Go to the state that *event* leads to and return it."""
        state = TABLE[self.state][event]
        assert state >= 0, f"{STATE_NAMES[self.state]} x {EVENT_NAMES[event]}"
        self.state = state
        return state
