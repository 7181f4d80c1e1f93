"""Run the load generator (``load.c``): build it when needed, give it the request headers, read its report.

Every side of a comparison is measured by this one generator; nothing here knows which server answers.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.status import ConfigError

SOURCES = Path(__file__).resolve().parent
BINARIES = SOURCES.parent / "build" / "bench"
FLAGS = ("-O2", "-std=gnu11", "-lzmq", "-lm")
# What a run may take beyond its own length: start, drain, a loaded machine.
GRACE_S = 60.0
CURE = "install a C compiler and libzmq's headers (Debian: apt install gcc libzmq3-dev)"


@dataclass(frozen=True, slots=True)
class Headers:
    """A table of request headers of one size, each a finished FlatBuffer; the generator patches the id of each."""

    table: bytes
    header_bytes: int
    id_at: int

    @classmethod
    def of(cls, headers: Sequence[bytes | bytearray]) -> Headers:
        """Return the table of *headers*, which must share one layout: same size, route at the same place."""
        layouts = {(len(header), route_at(header)) for header in headers}
        if len(layouts) != 1:
            raise ValueError(f"headers of one layout expected, got (bytes, route at) {sorted(layouts)}")
        ((header_bytes, id_at),) = layouts
        return cls(b"".join(headers), header_bytes, id_at)


@dataclass(frozen=True, slots=True)
class Load:
    """How to load a server.

    Args:
        outstanding: closed loop: requests under way; open loop: at most so many.
        rate: requests per second of an open loop; 0 = closed loop.
        is_poisson: exponential instead of equal distances in the open loop.
        seconds: measured time, after *warm_up_s* that does not count.
        drain_s: how long answers are awaited after the last send; what is missing then is lost.
        is_echo: the server sends requests back unchanged (a limit), else it answers with Slotline messages.
    """

    outstanding: int
    rate: float = 0.0
    is_poisson: bool = False
    seconds: float = 3.0
    warm_up_s: float = 1.0
    drain_s: float = 5.0
    sockets: int = 1
    is_echo: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What the generator saw. Counters are of the whole run: sent = ok + errors + lost; the rest of the measured time.

    ``strange`` are messages that answer no request; ``late_us`` is the mean of send time - due time of an open loop.
    """

    sent: int
    ok: int
    errors: int
    lost: int
    doubled: int
    strange: int
    errors_by_code: Mapping[str, int]
    seconds: float
    rate: float
    p50_us: float
    p90_us: float
    p99_us: float
    max_us: float
    samples: int
    client_cpu_s: float
    late_us: float
    late_max_us: float

    @property
    def is_clean(self) -> bool:
        """True when every request was answered once, with a result, and nothing else came."""
        return self.sent == self.ok > 0 and self.doubled == self.strange == 0


def route_at(header: bytes | bytearray) -> int:
    """Return the byte where the request id lies: start of ``Message.route`` (field 0) of a finished header."""
    (root,) = struct.unpack_from("<I", header, 0)
    (vtable_back,) = struct.unpack_from("<i", header, root)
    (field,) = struct.unpack_from("<H", header, root - vtable_back + 4)
    return int(root + field)


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


def run_load(endpoint: str, headers: Headers, load: Load) -> Report:
    """Load the server at *endpoint* and return what came of it.

    Raises:
        ConfigError: the generator could not be built or did not run to its end.
    """
    with tempfile.NamedTemporaryFile(suffix=".headers") as table:
        table.write(headers.table)
        table.flush()
        argv = [str(build("load")), "--endpoint", endpoint, "--header", table.name, *_options(headers, load)]
        limit_s = load.warm_up_s + load.seconds + load.drain_s + GRACE_S
        result = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=limit_s)
    if result.returncode != 0:
        raise ConfigError(f"the load generator failed: {result.stderr.strip() or f'exit {result.returncode}'}")
    return Report(**json.loads(result.stdout))


def _options(headers: Headers, load: Load) -> list[str]:
    """Return the generator's options for *headers* and *load*."""
    values = {
        "size": headers.header_bytes,
        "count": len(headers.table) // headers.header_bytes,
        "id-at": headers.id_at,
        "sockets": load.sockets,
        "outstanding": load.outstanding,
        "seconds": load.seconds,
        "warm-up": load.warm_up_s,
        "drain": load.drain_s,
    }
    if load.rate > 0:
        values["rate"] = load.rate
    options = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    return options + ["--poisson"] * load.is_poisson + ["--echo"] * load.is_echo
