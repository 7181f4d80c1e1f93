"""What processes use, from /proc: CPU time and proportional memory (PSS) of a server with everything that it started."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KIB_PER_MIB = 1024
# The slots of a lane, a memory file without a name in the file system.
_ARENA = "/memfd:slotline."


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB of a server's processes, each shared page counted once: all of it, and the part that is slots."""

    total_mib: float
    arena_mib: float
    processes: int


def tree(pid: int) -> list[int]:
    """Return *pid* and all processes below it; empty when it is gone."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid] if _stat(pid) else []
    for one in found:
        found += children.get(one, [])
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """Return the seconds that *pids* and their reaped children have run, in user and kernel mode."""
    ticks = sum(sum(map(int, fields[11:15])) for fields in map(_stat, pids) if fields)
    return ticks / _TICKS_PER_S


def memory(pids: Iterable[int]) -> Memory:
    """Return the PSS of *pids*; a process that ends meanwhile is left out."""
    total = arena = count = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps").read_text("utf-8", "replace").splitlines()
            count += 1
            of_arena = False
            for line in lines:
                if line.startswith("Pss:"):
                    kib = int(line.split()[1])
                    total += kib
                    arena += kib if of_arena else 0
                elif line[0] in "0123456789abcdef":
                    of_arena = _ARENA in line
    return Memory(total / _KIB_PER_MIB, arena / _KIB_PER_MIB, count)


def server_pid(endpoint: str) -> int | None:
    """Return the process that serves an ipc endpoint of this machine, by its lock file; None when it is not known."""
    if not endpoint.startswith("ipc://"):
        return None
    try:
        pid = int(Path(endpoint.removeprefix("ipc://") + ".lock").read_text("utf-8").strip())
    except (OSError, ValueError):
        return None
    return pid if _stat(pid) else None


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat behind the name (state first), empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []
