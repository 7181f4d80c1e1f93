"""Compile the C programs of the benchmark at their first use."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from schemas.status import ConfigError

SOURCES = Path(__file__).resolve().parent
BINARIES = SOURCES.parent / "build" / "bench"
FLAGS = ("-O2", "-std=gnu11", "-lzmq", "-lm")
CURE = "install a C compiler and libzmq's headers (Debian: apt install gcc libzmq3-dev)"


def build(name: str) -> Path:
    """Return the compiled ``bench/<name>.c``; compile it unless these very sources are compiled already.

    Raises:
        ConfigError: no compiler, no libzmq headers, or the compiler refused the source.
    """
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sorted([*SOURCES.glob("*.h"), SOURCES / f"{name}.c"]):
        digest.update(source.read_bytes())
    binary = BINARIES / f"{name}-{digest.hexdigest()[:16]}"
    if not binary.exists():
        _compile(SOURCES / f"{name}.c", binary)
    return binary


def _compile(source: Path, binary: Path) -> None:
    """Compile *source*; *binary* appears whole or not at all, so that two runs may compile at once."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise ConfigError(f"the benchmark's {source.name} needs compiling and there is no compiler: {CURE}")
    binary.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=binary.parent) as scratch:
        made = Path(scratch) / binary.name
        result = subprocess.run([compiler, str(source), "-o", str(made), *FLAGS], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            complaint = next(
                (line for line in result.stderr.splitlines() if "error" in line or "cannot" in line), "no reason given"
            )
            raise ConfigError(f"cannot compile {source.name} ({complaint.strip()}): {CURE}")
        made.replace(binary)
