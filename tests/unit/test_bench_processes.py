"""Servers of the benchmark: started, awaited, ended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.processes import running
from schemas.status import ConfigError

SERVER = """\
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("ended", file=sys.stderr), sys.exit(0)))
print("starting")
print("ready ipc://somewhere control=ipc://elsewhere", flush=True)
signal.pause()
"""


def test_a_server_is_used_between_its_ready_line_and_sigterm(tmp_path: Path) -> None:
    """The words of the ready line come out; afterwards the process has ended in order."""
    log = tmp_path / "log"
    with running([sys.executable, "-c", SERVER], log=log) as process:
        assert process.words == ("ready", "ipc://somewhere", "control=ipc://elsewhere")
        assert Path(f"/proc/{process.pid}").exists()

    assert log.read_text() == "ended\n"


def test_a_server_that_fails_to_start_is_one_line_with_its_last_words(tmp_path: Path) -> None:
    """The reason is what it wrote last to standard error."""
    argv = [sys.executable, "-c", "import sys; sys.exit('no model here')"]

    with (
        pytest.raises(ConfigError, match=r"ended before it was ready; its last words: no model here"),
        running(argv, log=tmp_path / "log"),
    ):
        pass
