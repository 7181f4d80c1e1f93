"""A real server for tests: started from the command line, waited for by its ready line, watched through /proc.

Everything it makes lies under one short directory, so that what it leaves behind can be found.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RUN = [sys.executable, str(ROOT / "run.py")]
DEMO = "demo"
# Ten times what a start takes on two busy cores: only there so that no test hangs.
PATIENCE_S = 30.0
MARK = "SLOTLINE_TEST_PLACE"


class Server:
    """One ``run.py serve`` and its children. *place* is its own directory: config, sockets, private files.

    Args:
        config: the text of a config file, or ``demo``.
        environment: added to that of the tests, for all processes of the server.
    """

    def __init__(self, place: Path, config: str, *, environment: Mapping[str, str] | None = None) -> None:
        self.place = place
        self.config = config
        self.endpoint = f"ipc://{place}/s"
        self.control = f"ipc://{place}/s.control"
        self._errors = place / "stderr"
        self._environment = {**place_environment(place), **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Server:
        """Start it and wait until it serves."""
        self.launch()
        return self.wait_ready()

    def wait_ready(self) -> Server:
        """Wait for the ready line."""
        wait_until(lambda: self._out.stat().st_size > 0 or self.poll() is not None, "a ready line")
        line = self.ready_line()
        assert line.startswith(f"ready {self.endpoint} control={self.control}"), line + self.errors()
        return self

    def launch(self) -> None:
        """Start it and do not wait."""
        path = DEMO
        if self.config != DEMO:
            path = str(self.place / "config.toml")
            Path(path).write_text(self.config)
        self._out = self.place / "stdout"
        with self._out.open("wb") as out, self._errors.open("ab") as errors:
            command = [*RUN, "serve", path, "--endpoint", self.endpoint]
            self._process = subprocess.Popen(
                command, stdout=out, stderr=errors, stdin=subprocess.DEVNULL, env=self._environment, cwd=self.place
            )

    def ready_line(self) -> str:
        """Return what it has written to stdout: the ready line, once it serves."""
        return self._out.read_text().strip()

    @property
    def pid(self) -> int:
        """The supervisor's process number."""
        assert self._process is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return the supervisor's exit code, None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the end and return the exit code; negative is the signal that killed it."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def signal(self, number: int) -> None:
        """Send a signal to the supervisor."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> int:
        """Ask it to end, and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def end(self) -> None:
        """End it if it runs: in a hurry, or by force when it hangs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process is not None and self._process.poll() is None:
                self.signal(signal.SIGTERM)
                self.signal(signal.SIGTERM)
                self.wait(10.0)
        self.kill()

    def kill(self) -> None:
        """Kill the supervisor if it lives; its children follow."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE_S)

    def errors(self) -> str:
        """Return what it wrote to stderr."""
        return self._errors.read_text() if self._errors.exists() else ""

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log lines of one event."""
        lines = [line for line in self.errors().splitlines() if line.startswith("{")]
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def deaths(self) -> list[str]:
        """Return the names of the workers that died, once for each death."""
        return [event["child"] for event in self.events("died")]

    def children(self) -> dict[str, int]:
        """Return name -> pid of the children that live."""
        found: dict[str, int] = {}
        for pid in pids():
            spawn = _spawn(pid)
            if spawn is not None and spawn["parent"] == self.pid and _state(pid) != "Z":
                found[spawn["name"]] = pid
        return found

    def child(self, name: str) -> int:
        """Wait until the child *name* lives and return its pid."""
        wait_until(lambda: name in self.children(), f"a process {name}")
        return self.children()[name]


def place_environment(place: Path) -> dict[str, str]:
    """Return the environment that keeps a server's files in *place*, marks its processes and lets it import the test stages."""
    return {
        **os.environ,
        "XDG_RUNTIME_DIR": str(place),
        "PYTHONPATH": str(Path(__file__).parent),
        MARK: str(place),
    }


def run_once(place: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command of the command line to its end."""
    every = {**place_environment(place), **(environment or {})}
    return subprocess.run(
        [*RUN, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, env=every, cwd=place, check=False
    )


def wait_until(condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Wait until *condition* holds, looking every 10 ms; fail when it does not."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.01)


def pids() -> list[int]:
    """Return all process numbers."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def left_behind(place: Path) -> list[str]:
    """Return what a server in *place* left: processes, shared memory, sockets, locks, private directories."""
    found = [f"process {pid}: {_command(pid)[:80]}" for pid in pids() if _is_of(pid, place)]
    found += [f"memory {link} of process {pid}" for pid in pids() if _is_of(pid, place) for link in memory_of(pid)]
    files = [path for path in place.rglob("*") if path.is_socket() or path.suffix == ".lock" or path.name.startswith("slotline-")]
    return found + [f"file {path}" for path in files]


def memory_of(pid: int) -> dict[str, int]:
    """Return lane name (or ``board``) -> descriptor of the shared memory that a process has open."""
    found: dict[str, int] = {}
    for number, link in _links(pid):
        if "memfd:slotline." in link:
            found[link.partition("memfd:slotline.")[2].partition(" ")[0]] = number
    return found


def _links(pid: int) -> Iterator[tuple[int, str]]:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield int(name), os.readlink(f"/proc/{pid}/fd/{name}")


def _is_of(pid: int, place: Path) -> bool:
    """True for every process that a server in *place* started, whatever became of its parent."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={place}".encode() in environment.split(b"\0") and _state(pid) != "Z"


def _spawn(pid: int) -> dict[str, Any] | None:
    """Return what a child of a server was told on its command line."""
    last = _command(pid).rstrip("\0").rpartition("\0")[2]
    if not last.startswith('{"name"'):
        return None
    spawn: dict[str, Any] = json.loads(last)
    return spawn


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
