"""Shared memory for one epoch: sealed memfds, populated at start. Descriptors are inherited; nothing is attached by name.

No numpy: the supervisor owns these descriptors.
"""

from __future__ import annotations

import errno
import fcntl
import os

from schemas.plan import Plan
from schemas.status import ConfigError
from schemas.words import BOARD_BYTES

from .headroom import available_bytes

# Against resizing, and against taking the seals off: a truncated memfd kills those who map it by SIGBUS.
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
NAME_PREFIX = "slotline."


class EpochMemory:
    """The board and the lanes' arenas of one life of the broker."""

    def __init__(self, plan: Plan) -> None:
        self.board = -1
        self.arenas: tuple[int, ...] = ()
        _check_headroom(plan)
        try:
            self.board = _make("board", BOARD_BYTES, "the board")
            for lane in plan.lanes:
                key = f"lane.{lane.name}.slots = {lane.slots}: its arena of {lane.arena_bytes / 2**20:.0f} MiB"
                self.arenas += (_make(lane.name, lane.arena_bytes, key),)
        except ConfigError:
            self.close()
            raise

    def close(self) -> None:
        """Give the descriptors back; the memory goes with its last mapping."""
        for descriptor in (self.board, *self.arenas):
            if descriptor >= 0:
                os.close(descriptor)
        self.board, self.arenas = -1, ()


def _check_headroom(plan: Plan) -> None:
    """Raise ConfigError when the arenas are more than there is: the kernel would give page after page, then kill somebody."""
    wanted = sum(lane.arena_bytes for lane in plan.lanes)
    available = available_bytes()
    if available is not None and wanted > available:
        largest = max(plan.lanes, key=lambda lane: lane.arena_bytes)
        raise ConfigError(
            f"lane.{largest.name}.slots = {largest.slots}: all lanes take {_mib(wanted)} MiB of shared memory, this one "
            f"{_mib(largest.arena_bytes)}, but {_mib(available)} are available: lower slots, max_encoded_bytes or max_pixels"
        )


def _mib(size: int) -> int:
    return size >> 20


def _make(name: str, size: int, key: str) -> int:
    """Return a sealed memfd of *size* bytes with every page there, or raise ConfigError."""
    descriptor = os.memfd_create(NAME_PREFIX + name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
            raise ConfigError(f"{key} does not fit into memory: lower slots, max_encoded_bytes or max_pixels") from None
        raise
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor
