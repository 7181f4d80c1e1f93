"""The kernel's limit on private writable memory (RLIMIT_DATA), which shared arenas and libraries' code do not count for."""

from __future__ import annotations

import re
import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")


def limit_private_memory(more_bytes: int) -> None:
    """Let this process take no more than *more_bytes* beyond what it has now; what is above a limit already set stays there."""
    limit = private_bytes() + more_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))


def private_bytes(status: Path = _STATUS) -> int:
    """Return the private writable memory of this process, as RLIMIT_DATA counts it."""
    found = re.search(r"^VmData:\s+(\d+) kB$", status.read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024
