"""The processes beside the server, as the chaos process deals with them: given a task, told by lines, asked for reports."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.chaos.checker import Task
from bench.processes import REPO
from schemas.status import ConfigError

# Longer than the checker's own patience with its last answers.
PATIENCE_S = 150.0


class Helper:
    """One process, ``python -m bench.chaos.<name>``, with its task in *file*."""

    def __init__(self, name: str, task: Task, file: Path) -> None:
        self._name = name
        file.write_text(task.to_json(), encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"bench.chaos.{name}", str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPO,
            text=True,
        )
        self._read()

    def order(self, text: str) -> dict[str, Any]:
        """Give one order and return the answer.

        Raises:
            ConfigError: it ended, or does not answer.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._gone() from None
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        line = self._process.stdout.readline() if readable else ""
        if not line:
            raise self._gone()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _gone(self) -> ConfigError:
        return ConfigError(f"the {self._name} of the chaos run ended or does not answer: see its lines above")

    def close(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
