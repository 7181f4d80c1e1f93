"""The [leases] table: the regions that the server lends to clients on its machine. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.config_rules import GIB, MIB, about, whole


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Shared memory for clients on the same machine, taken in full at start."""

    count: int = field(
        default=0,
        metadata=about(
            whole(0, 1024), "Regions to lend, one to a client at a time; one that finds none free is told BUSY.", unit="leases"
        ),
    )
    frames: int = field(
        default=4,
        metadata=about(
            whole(1, 1024),
            "Of each lease. 4: one that the client writes, one in the backlog, one with the stages, one for a reply.",
            unit="frames",
        ),
    )
    frame_bytes: int = field(
        default=8 * MIB,
        metadata=about(
            whole(64, GIB), "Largest tensor in a frame; rounded up to whole pages. 8 MiB holds 2048 x 1536 RGB.", unit="bytes"
        ),
    )
