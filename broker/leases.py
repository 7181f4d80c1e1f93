"""Which region is lent to whom, and which of its frames requests use. Pure: no socket, no clock, no memory.

Owner: the broker's main thread. A region goes round: free, lent, ended (its client is gone or wants it no more), left (nobody
outside can write into it any more), and free again once no request uses it and it was cleaned.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.leases import RegionForm
from schemas.status import Code, Flag, RequestError, printable
from schemas.wire_tensors import Lease

from .life import DONE, Client, Request

_RELEASED = int(Flag.RELEASED)
_MAX_U32 = 0xFFFFFFFF


@dataclass(slots=True, eq=False)
class Grant:
    """One lease: a region, its generation and the one connection that may name it.

    *uses* counts the requests that use each frame; *replies* are the frames that a reply will be written to.
    """

    region: int
    generation: int
    client: Client
    uses: Counter[int] = field(default_factory=Counter)
    replies: set[int] = field(default_factory=set)
    is_ended: bool = False
    is_left: bool = False


class Wish(NamedTuple):
    """A frame that a request names: for the tensor *name*, as an input or to have its reply put there."""

    name: str
    lease: Lease
    is_reply: bool


class Held(NamedTuple):
    """A frame that an accepted request uses."""

    grant: Grant
    frame: int
    is_reply: bool


class LeasePool:
    """All regions of one epoch.

    Args:
        generations: the first generation of each region, best a random one, so that leases of an earlier life are none now.
    """

    def __init__(self, form: RegionForm, generations: Sequence[int]) -> None:
        self.form = form
        self.count = len(generations)
        self._generations = list(generations)
        self._grants: list[Grant | None] = [None] * self.count
        # The one that was given back longest ago is lent next.
        self._free = deque(range(self.count))
        self._dirty: deque[int] = deque()
        # Answered while a stage could still read their frames; the shell tells their clients that these are free now.
        self.released: list[Request] = []

    # --- lending ---------------------------------------------------------------------------------------------------------

    def lend(self, client: Client) -> Grant | None:
        """Lend *client* a region; None when none is free."""
        if not self._free:
            return None
        region = self._free.popleft()
        self._generations[region] = generation = (self._generations[region] + 1) & _MAX_U32
        grant = self._grants[region] = Grant(region, generation, client)
        client.leases += 1
        return grant

    def end(self, grant: Grant) -> None:
        """Let no new request name *grant*: the connection that had it has ended."""
        if not grant.is_ended:
            grant.is_ended = True
            grant.client.leases -= 1

    def left(self, grant: Grant) -> None:
        """Take note that whoever had *grant* cannot write into its region any more."""
        self.end(grant)
        grant.is_left = True
        self._give_back(grant)

    def of_client(self, client: Client) -> list[Grant]:
        """Return the leases of a connection."""
        return [grant for grant in self._grants if grant is not None and grant.client is client]

    def _give_back(self, grant: Grant) -> None:
        if grant.is_left and not grant.uses.total() and self._grants[grant.region] is grant:
            self._grants[grant.region] = None
            self._dirty.append(grant.region)

    @property
    def dirty(self) -> int | None:
        """The region to clean next: nobody must find there what it does not write itself. None when there is none."""
        return self._dirty[0] if self._dirty else None

    def cleaned(self) -> None:
        """Take note that the region ``dirty`` is clean; it may be lent again."""
        self._free.append(self._dirty.popleft())

    # --- use -------------------------------------------------------------------------------------------------------------

    def check_place(self, wish: Wish) -> None:
        """Check that there is such a frame at all, whosever it is: before anything is computed from its numbers.

        Raises:
            RequestError: BAD_LEASE, in the words of ``find``.
        """
        if wish.lease.region >= self.count:
            raise _not_yours(wish)
        if wish.lease.frame >= self.form.frames:
            raise _bad(wish.name, f"frame 0 to {self.form.frames - 1}", wish.lease.frame)

    def find(self, client: Client, wish: Wish) -> Held:
        """Return the frame that a request of *client* names.

        Raises:
            RequestError: BAD_LEASE; somebody else's region is told like one that does not exist.
        """
        name, lease, is_reply = wish
        self.check_place(wish)
        grant = self._grants[lease.region]
        if grant is None or grant.client is not client:
            raise _not_yours(wish)
        if lease.generation != grant.generation:
            raise _bad(name, f"generation {grant.generation} of region {lease.region}", lease.generation)
        if grant.is_ended:
            raise _bad(name, "a lease that has not ended", f"region {lease.region}")
        if lease.nbytes > self.form.frame_bytes:
            raise _bad(name, f"at most {self.form.frame_bytes} bytes (leases.frame_bytes)", lease.nbytes)
        if lease.frame in grant.replies or (is_reply and grant.uses[lease.frame]):
            expected = "a frame that no other request uses" if is_reply else "a frame that no reply is to be written to"
            raise _bad(name, expected, f"frame {lease.frame}")
        return Held(grant, lease.frame, is_reply)

    def hold(self, request: Request) -> None:
        """Take note that an accepted request uses its frames."""
        for grant, frame, is_reply in request.leases:
            grant.uses[frame] += 1
            if is_reply:
                grant.replies.add(frame)

    def settle(self, request: Request) -> int:
        """Return the flag that the answer to *request* has: Released when its frames are let go with it, else 0."""
        if not request.leases or request.state != DONE:
            return 0
        self._let_go(request)
        return _RELEASED

    def release(self, request: Request) -> None:
        """Let go of the frames of a request that has had its answer, or gets none, once no stage can read them."""
        if request.leases and request.state == DONE:
            self._let_go(request)
            self.released.append(request)

    def _let_go(self, request: Request) -> None:
        held, request.leases = request.leases, ()
        for grant, frame, is_reply in held:
            grant.uses[frame] -= 1
            if not grant.uses[frame]:
                del grant.uses[frame]
            if is_reply:
                grant.replies.discard(frame)
            self._give_back(grant)

    # --- statistics ------------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, int]:
        """Return counts for people."""
        lent = [grant for grant in self._grants if grant is not None]
        return {
            "count": self.count,
            "lent": sum(not grant.is_ended for grant in lent),
            "ended": sum(grant.is_ended for grant in lent),
            "free": len(self._free),
            "cleaning": len(self._dirty),
            "frames_in_use": sum(len(grant.uses) for grant in lent),
            "bytes": self.count * self.form.region_bytes,
            "lent_bytes": len(lent) * self.form.region_bytes,
        }


def _not_yours(wish: Wish) -> RequestError:
    return _bad(wish.name, "a region leased to this connection", f"region {wish.lease.region}")


def _bad(name: str, expected: str, got: object) -> RequestError:
    return RequestError(Code.BAD_LEASE, field=printable(name), expected=expected, got=got)


def no_leases() -> LeasePool:
    """Return the pool of a server that lends none."""
    return LeasePool(RegionForm(0, 0), ())
