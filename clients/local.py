"""A server of one's own for as long as a block lasts: a child process, ended by SIGTERM. The demo's; handy in scripts."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas.status import ConfigError

# Loading models on a busy machine; a server that needs longer is waited for by hand.
START_S = 60.0
STOP_S = 30.0


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server that is ready: where clients connect, and its control socket."""

    endpoint: str
    control: str


@contextlib.contextmanager
def local_server(command: Sequence[str]) -> Iterator[LocalServer]:
    """Start *command* (``... serve CONFIG --json``), wait until it is ready, and end it after the block.

    Raises:
        ConfigError: it did not start; its own line has gone to stderr. Or it did not end well.
    """
    # The server ends with us, however we end.
    process = subprocess.Popen([*command, "--parent", str(os.getpid())], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        readable, _, _ = select.select([process.stdout], [], [], START_S)
        line = process.stdout.readline() if readable else b""
        if not line:
            raise ConfigError("the server did not start: see its line above")
        ready = json.loads(line)
        if "error" in ready:
            raise ConfigError(ready["error"])
        yield LocalServer(ready["endpoint"], ready["control"])
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        process.stdout.close()
    if code:
        raise ConfigError(f"the server ended with code {code}: see its log lines above")
