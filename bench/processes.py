"""Start one server process, wait until it says that it is ready, and end it again. Knows nothing of what the server does."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.status import ConfigError

# A model server imports and warms up; on a loaded machine that takes seconds.
READY_LIMIT_S = 60.0
# Beyond what a server may need to drain; only a hung one meets it.
STOP_LIMIT_S = 20.0
REPO = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Process:
    """A server that is ready: its process number, and the words of its "ready ..." line."""

    pid: int
    words: tuple[str, ...]


@contextlib.contextmanager
def running(argv: Sequence[str | Path], *, log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Process]:
    """Run *argv* in the repository's root and yield it once it said "ready ..."; SIGTERM at the end.

    Args:
        log: file that takes its stderr; its last line becomes the error message when the start fails.

    Raises:
        ConfigError: it ended, or said nothing for READY_LIMIT_S.
    """
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [str(word) for word in argv],
            stdout=subprocess.PIPE,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            cwd=REPO,
            env={**os.environ, **(environment or {})},
        )
        try:
            yield Process(process.pid, tuple(_wait_ready(process, argv, log)))
        finally:
            _stop(process)


def _wait_ready(process: subprocess.Popen[bytes], argv: Sequence[str | Path], log: Path) -> list[str]:
    """Return the words of the first line of standard output that begins with "ready"."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    deadline = time.monotonic() + READY_LIMIT_S
    text = b""
    while time.monotonic() < deadline:
        if not select.select([descriptor], [], [], 0.5)[0]:
            continue
        chunk = os.read(descriptor, 4096)
        if not chunk:
            break
        text += chunk
        for line in text.decode("utf-8", "replace").splitlines(keepends=True):
            if line.startswith("ready") and line.endswith("\n"):
                return line.split()
    fate = "ended" if time.monotonic() < deadline else f"took over {READY_LIMIT_S:.0f} s"
    command = shlex.join(str(word) for word in argv)
    raise ConfigError(f"`{command}` {fate} before it was ready; its last words: {last_line(log)}")


def last_line(log: Path) -> str:
    """Return the last line of *log* that is not blank, or "nothing"."""
    lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End *process* by SIGTERM, by SIGKILL when it does not obey, and reap it."""
    assert process.stdout is not None
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
