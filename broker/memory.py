"""Shared memory for one epoch: sealed memfds, populated at start. Descriptors are inherited; nothing is attached by name.

No numpy: the supervisor owns these descriptors.
"""

from __future__ import annotations

import errno
import fcntl
import os

from schemas.config import LeaseConfig
from schemas.leases import RegionForm
from schemas.plan import Plan
from schemas.status import ConfigError
from schemas.words import BOARD_BYTES

from .headroom import available_bytes

# Against resizing, and against taking the seals off: a truncated memfd kills those who map it by SIGBUS.
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
NAME_PREFIX = "slotline."


class EpochMemory:
    """The board, the lanes' arenas and the regions lent to clients, of one life of the broker.

    Those of an earlier life stay with whoever has mapped them, and are nobody else's.
    """

    def __init__(self, plan: Plan, leases: LeaseConfig | None = None) -> None:
        self.board = -1
        self.arenas: tuple[int, ...] = ()
        self.leases: tuple[int, ...] = ()
        leases = leases or LeaseConfig()
        lease_bytes = RegionForm(leases.frames, leases.frame_bytes).region_bytes
        _check_headroom(plan, leases.count * lease_bytes)
        try:
            self.board = _make("board", BOARD_BYTES, "the board", "slots")
            for lane in plan.lanes:
                key = f"lane.{lane.name}.slots = {lane.slots}: its arena of {lane.arena_bytes / 2**20:.0f} MiB"
                self.arenas += (_make(lane.name, lane.arena_bytes, key, "slots, max_encoded_bytes or max_pixels"),)
            for number in range(leases.count):
                key = f"leases.count = {leases.count}: one lease of {lease_bytes / 2**20:.0f} MiB"
                self.leases += (_make(f"lease{number}", lease_bytes, key, "count, frames or frame_bytes"),)
        except ConfigError:
            self.close()
            raise

    def close(self) -> None:
        """Give the descriptors back; the memory goes with its last mapping."""
        for descriptor in (self.board, *self.arenas, *self.leases):
            if descriptor >= 0:
                os.close(descriptor)
        self.board, self.arenas, self.leases = -1, (), ()


def _check_headroom(plan: Plan, lease_bytes: int) -> None:
    """Raise ConfigError when all is more than there is: the kernel would give page after page, then kill somebody."""
    wanted = sum(lane.arena_bytes for lane in plan.lanes)
    available = available_bytes()
    if available is not None and wanted <= available < wanted + lease_bytes:
        raise ConfigError(
            f"leases: they take {_mib(lease_bytes)} MiB of shared memory beside the lanes' {_mib(wanted)}, but {_mib(available)} "
            "are available: lower leases.count, leases.frames or leases.frame_bytes"
        )
    if available is not None and wanted > available:
        largest = max(plan.lanes, key=lambda lane: lane.arena_bytes)
        raise ConfigError(
            f"lane.{largest.name}.slots = {largest.slots}: all lanes take {_mib(wanted)} MiB of shared memory, this one "
            f"{_mib(largest.arena_bytes)}, but {_mib(available)} are available: lower slots, max_encoded_bytes or max_pixels"
        )


def _mib(size: int) -> int:
    return size >> 20


def _make(name: str, size: int, key: str, cure: str) -> int:
    """Return a sealed memfd of *size* bytes with every page there, or raise ConfigError with the keys to lower."""
    descriptor = os.memfd_create(NAME_PREFIX + name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
            raise ConfigError(f"{key} does not fit into memory: lower {cure}") from None
        raise
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor
