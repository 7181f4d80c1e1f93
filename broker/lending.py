"""Leases as the broker's loop sees them: the pool, the memory, the door, and what clients are told. Owner: its main thread."""

from __future__ import annotations

import secrets

from schemas.config import Config
from schemas.lease_regions import LeaseRegions
from schemas.leases import RegionForm, socket_path
from schemas.spawn import Spawn

from .lease_door import LeaseDoor
from .leases import LeasePool
from .life import Client
from .marks import release_header
from .outbox import Outbox, Reply
from .roster import Roster

# Between two pieces of a region that is cleaned.
CLEANING_NS = 1_000_000


class Lending:
    """What the server lends; a server without leases has none of *regions* and no *door*."""

    def __init__(self, spawn: Spawn, config: Config) -> None:
        form = RegionForm(config.leases.frames, config.leases.frame_bytes)
        # Random, so that a lease of an earlier life of the broker is none now.
        self.pool = LeasePool(form, [secrets.randbits(32) for _ in spawn.leases])
        self.regions = LeaseRegions(spawn.leases, form, writable=True) if spawn.leases else None
        self.door: LeaseDoor | None = None
        if self.regions is not None:
            path = socket_path(config.server.endpoint, spawn.directory)
            self.door = LeaseDoor(self.pool, spawn.leases, self.regions, path)

    def meet(self, roster: Roster) -> None:
        """Get to know who may be lent something."""
        if self.door is not None:
            self.door.meet(roster)

    def turn(self, outbox: Outbox, now_ns: int, due_ns: int, *, has_news: bool) -> int:
        """Lend regions, take them back, tell clients which frames are free since their answers.

        Return when the next turn is due: *due_ns*, or soon while a region is being cleaned.
        """
        if self.door is None:
            return due_ns
        if has_news:
            self.door.turn()
        released, self.pool.released = self.pool.released, []
        for request in released:
            if not request.client.gone:
                header = release_header((request.request_id, request.born_us, request.key))
                outbox.put(request.client, Reply(header, (), None))
        return min(due_ns, now_ns + CLEANING_NS) if self.door.clean() else due_ns

    def client_gone(self, client: Client) -> None:
        """End the leases of a connection that cannot be reached."""
        if self.door is not None:
            self.door.client_gone(client)

    def close(self) -> None:
        """Close the door."""
        if self.door is not None:
            self.door.close()
