"""Have another process load models and functions and make the plan: the supervisor stays small and is not hurt by them.

Neither zmq nor numpy. The child writes one line of JSON to a descriptor of its own: what it prints is a person's business.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from schemas.config import Config
from schemas.plan import Plan, plan_of
from schemas.status import ConfigError, DeviceError

# Large models on a busy machine; a function's module that hangs while it is imported is told apart by this alone.
LIMIT_S = 180


def plan_in_child(command: Sequence[str], config: Config) -> Plan:
    """Return the plan of *config*.

    Args:
        command: what starts a process of this program; the rest of the line is added.

    Raises:
        ConfigError: a model, a library or a function is missing or does not fit; one line with the cure.
    """
    reader, writer = os.pipe()
    where = [str(Path(config.source).absolute()), config.server.endpoint]
    child = subprocess.Popen(
        [*command, "describe", *where, str(os.getpid()), str(writer)], pass_fds=(writer,), stdout=2, stdin=subprocess.DEVNULL
    )
    os.close(writer)
    try:
        line = _read_line(reader)
    finally:
        os.close(reader)
        child.kill()
        code = child.wait()
    if not line:
        ended = (
            "was killed by this program: a module that hangs at its import?"
            if code == -signal.SIGKILL
            else f"ended with code {code}"
        )
        raise ConfigError(f"{config.source}: reading its models and functions {ended}; see what it printed above")
    answer = json.loads(line)
    if "error" in answer:
        raise (DeviceError if answer["is_device"] else ConfigError)(answer["error"])
    return plan_of(answer["plan"])


def _read_line(reader: int) -> bytes:
    """Return one line, b"" when the writers are gone or the time is over. Not until the end: a forked child may keep the pipe."""
    until = time.monotonic() + LIMIT_S
    line = b""
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([reader], [], [], max(0.0, until - time.monotonic()))
        part = os.read(reader, 1 << 20) if readable else b""
        if not part:
            return b""
        line += part
    return line
