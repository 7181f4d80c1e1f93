"""Start ``bare.py`` and give it orders."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.processes import REPO, last_line
from schemas.status import ConfigError


class Bare:
    """One process of bare work."""

    def __init__(self, log: Path) -> None:
        self._log = log
        argv = [sys.executable, "-m", "bench.bare", str(os.getpid())]
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=REPO, text=True
            )
        self._read()

    def order(self, **order: Any) -> None:
        """Tell it what to do."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end is told by the answer that does not come
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def answer(self) -> Mapping[str, float]:
        """Wait for what came of the last order.

        Raises:
            ConfigError: the process died.
        """
        found: Mapping[str, float] = json.loads(self._read())
        return found

    def ask(self, **order: Any) -> Mapping[str, float]:
        """Order and wait."""
        self.order(**order)
        return self.answer()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ConfigError(f"the bare loop failed: {last_line(self._log)}")
        return line


@contextlib.contextmanager
def bare(directory: Path, name: str = "bare") -> Iterator[Bare]:
    """Run a process of bare work; *name* tells its log file from others in *directory*."""
    process = Bare(directory / f"{name}.log")
    try:
        yield process
    finally:
        process.close()
