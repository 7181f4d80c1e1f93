"""The hop: the 32-byte record by which one process hands a slot to the next. Private to the server; clients never see it.

A PUSH message carries one hop or many, back to back. ``struct`` packs private bytes only; shared memory is ``arena.py``'s.
"""

from __future__ import annotations

import struct
from enum import IntEnum

# hop, 32 bytes, little-endian
#   0 slot u32 | 4 generation u32 | 8 ticket u64 | 16 lane u16 | 18 kind u8 | 19 stage u8 | 20 code u16 | 22 flags u16
#   24 deadline_ns u64 (monotonic clock of this machine)
HOP = struct.Struct("<IIQHBBHHQ")

# Set in ``flags``: run this one alone, because a process died while it ran in a batch.
LONE = 1

# (slot, generation, ticket, lane, kind, stage, code, flags, deadline_ns), as ``HOP.unpack`` gives it.
Hop = tuple[int, int, int, int, int, int, int, int, int]


class HopKind(IntEnum):
    """What a hop says."""

    UNSET = 0
    WORK = 1  # run the stages from ``stage`` on
    DONE = 2  # back at the broker: the result is in the slot, or ``code`` says why not
    NO_REPLICA = 3  # back at the broker: nobody serves ``stage`` now
    READY = 4  # the process whose incarnation is in ``ticket`` is warm and takes work
