"""One real server of a chaos run, started from the command line in a directory of its own, and what is left of it afterwards."""

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

from bench.processes import REPO
from schemas.status import ConfigError

RUN = [sys.executable, str(REPO / "run.py")]
# Watchdogs, ten times what a busy machine of two cores needs.
START_S = 180.0
END_S = 120.0
# In the environment of each process that a server starts, whatever becomes of its parent.
MARK = "SLOTLINE_CHAOS_PLACE"


class ChaosServer:
    """One ``run.py serve`` and its children.

    Args:
        place: a directory of its own with a short name: config, sockets, private files, logs.
        config: text of a config file, or the path of one.
        faults: the value of SLOTLINE_FAULT, "" for none.
        prepare: done in the new process before it becomes the server, for example to set its limits.
        endpoint: where it serves, "" = an ipc path in *place*.
    """

    def __init__(
        self,
        place: Path,
        config: str | Path,
        *,
        faults: str = "",
        prepare: Callable[[], None] | None = None,
        endpoint: str = "",
    ) -> None:
        self.place = place
        self.endpoint = endpoint or f"ipc://{place}/s"
        self.control = ""
        self._prepare = prepare
        self._environment = {**os.environ, "XDG_RUNTIME_DIR": str(place), MARK: str(place)}
        if faults:
            self._environment["SLOTLINE_FAULT"] = faults
        self.path = config if isinstance(config, Path) else place / "config.toml"
        if isinstance(config, str):
            self.path.write_text(config, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start it and do not wait."""
        with (self.place / "stdout").open("wb") as out, (self.place / "stderr").open("ab") as errors:
            self._process = subprocess.Popen(
                [*RUN, "serve", str(self.path), "--endpoint", self.endpoint],
                stdout=out,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                env=self._environment,
                preexec_fn=self._prepare,
            )

    def start(self) -> ChaosServer:
        """Start it and wait until it serves.

        Raises:
            ConfigError: it ended before, with its own line as the reason, or did not serve in time.
        """
        self.launch()
        wait_until(lambda: self.is_ready or self.poll() is not None, "the server's ready line", START_S)
        if not self.is_ready:
            raise ConfigError(f"the server did not start: {self.last_line()}")
        ready = (self.place / "stdout").read_text().split()
        self.endpoint, self.control = ready[1], ready[2].removeprefix("control=")
        return self

    @property
    def is_ready(self) -> bool:
        """True once it has said that it serves."""
        return (self.place / "stdout").read_bytes().startswith(b"ready ")

    @property
    def pid(self) -> int:
        """The supervisor's process number."""
        assert self._process is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def wait(self) -> int:
        """Wait for the end and return the exit code.

        Raises:
            ConfigError: it does not end.
        """
        assert self._process is not None
        try:
            return self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise ConfigError(f"the server did not end within {END_S:g} s") from None

    def terminate(self) -> None:
        """Tell it to end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def destroy(self) -> None:
        """End it by force if it runs, after a failure; its children follow."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def last_line(self) -> str:
        """Return the last line it wrote to stderr."""
        lines = (self.place / "stderr").read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return the log lines with these events, of all its lives."""
        lines = (self.place / "stderr").read_text("utf-8", "replace").splitlines()
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") in names:
                    found.append(event)
        return found

    def children(self) -> dict[str, tuple[int, int]]:
        """Return name -> (pid, incarnation) of the children that live, ``broker`` among them."""
        found: dict[str, tuple[int, int]] = {}
        for pid in _children_of(self.pid):
            spawn = _spawn(pid)
            if spawn is not None and _state(pid) != "Z":
                found[spawn["name"]] = (pid, spawn["incarnation"])
        return found

    def stages(self) -> dict[str, tuple[int, int]]:
        """Return the stage processes among them."""
        return {name: child for name, child in self.children().items() if name != "broker"}


def wait_until(condition: Callable[[], object], what: str, timeout_s: float) -> None:
    """Wait until *condition* holds, looking every 5 ms.

    Raises:
        ConfigError: it does not, in all that time.
    """
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise ConfigError(f"waited {timeout_s:g} s in vain for {what}")
        time.sleep(0.005)


def left_behind(place: Path) -> list[str]:
    """Return what servers in *place* left: processes, shared memory, sockets, locks, private directories."""
    pids = [pid for pid in _pids() if _is_of(pid, place)]
    found = [f"process {pid}" for pid in pids]
    found += [f"memory {name} of process {pid}" for pid in pids for name in memory_of(pid)]
    files = [path for path in place.rglob("*") if path.is_socket() or path.suffix == ".lock" or path.name.startswith("slotline-")]
    return found + [f"file {path.relative_to(place)}" for path in files]


def wait_nothing_left(place: Path) -> list[str]:
    """Return what is left once nothing changes any more: a killed supervisor's children end soon, not at once."""
    with contextlib.suppress(ConfigError):
        wait_until(lambda: not left_behind(place), "the end", 5.0)
    return left_behind(place)


def memory_of(pid: int) -> dict[str, int]:
    """Return lane name (or ``board``) -> descriptor of the shared memory that a process has open."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                link = os.readlink(f"/proc/{pid}/fd/{name}")
                if "memfd:slotline." in link:
                    found[link.partition("memfd:slotline.")[2].partition(" ")[0]] = int(name)
    return found


def rss_mib(pid: int) -> float:
    """Return the private memory of a process in MiB, 0 when it is gone: its slots, which are shared, do not count."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
    return 0.0


def threads_and_descriptors(pid: int) -> tuple[int, int]:
    """Return how many threads and open descriptors a process has, zeros when it is gone."""
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))
    return 0, 0


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _children_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _is_of(pid: int, place: Path) -> bool:
    with contextlib.suppress(OSError):
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        return f"{MARK}={place}".encode() in environment.split(b"\0") and _state(pid) != "Z"
    return False


def _spawn(pid: int) -> Mapping[str, Any] | None:
    """Return what a child of a server was told on its command line."""
    with contextlib.suppress(OSError, ValueError):
        last = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").rpartition("\0")[2]
        spawn = json.loads(last)
        return spawn if isinstance(spawn, dict) and "incarnation" in spawn else None
    return None


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"
