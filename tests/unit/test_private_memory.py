"""The limit on private memory is the kernel's, and shared memory does not count for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from schemas.private_memory import private_bytes

ROOT = Path(__file__).parents[2]
TAKES = """
import mmap, os
from schemas.private_memory import limit_private_memory
limit_private_memory(32 << 20)
shared = os.memfd_create("shared"); os.ftruncate(shared, 1 << 30)
mmap.mmap(shared, 1 << 30)
bytearray(8 << 20)
try:
    bytearray(64 << 20)
except MemoryError:
    print("limited")
"""


def test_the_kernel_says_how_much_there_is(tmp_path: Path) -> None:
    """In kB, among other lines."""
    status = tmp_path / "status"
    status.write_text("VmPeak:\t  100 kB\nVmData:\t   7 kB\nVmStk:\t  9 kB\n")

    assert private_bytes(status) == 7 * 1024
    assert private_bytes() > 1 << 20


def test_what_is_above_the_limit_is_not_given() -> None:
    """It counts from what the process has; shared memory is no part of it."""
    done = subprocess.run([sys.executable, "-c", TAKES], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "limited\n"
