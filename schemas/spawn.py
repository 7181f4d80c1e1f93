"""What a child process is told on its command line: which one it is, and the descriptors it inherits. No numpy, no zmq."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Spawn:
    """One start of one process.

    Args:
        name: for logs, "ticks.0" or "broker".
        process: index in ``Plan.processes``; -1 is the broker.
        replica: which of its replicas.
        incarnation: number of this start; its low byte is the column.
        epoch: random number of this life of the broker.
        config: the config file's path.
        endpoint: where clients connect, whatever the file says.
        control: where they ask for statistics, "" when the broker chooses.
        rebinds: clients know the endpoint from an earlier epoch; who else has its port just now may give it back.
        log_level: likewise.
        directory: of the plan, the sockets and everything else that this server keeps on disk.
        board: descriptor of the board.
        arenas: descriptor of each lane's arena, by lane index.
        leases: descriptor of each region that is lent to clients, by region number.
        channel: descriptor of the socket to the supervisor, -1 for none.
        parent: pid of the supervisor.
    """

    name: str
    process: int
    replica: int
    incarnation: int
    epoch: int
    config: str
    endpoint: str
    control: str
    rebinds: bool
    log_level: str
    directory: str
    board: int
    arenas: tuple[int, ...]
    leases: tuple[int, ...]
    channel: int
    parent: int

    def to_json(self) -> str:
        """Return the command-line argument."""
        return json.dumps(dataclasses.asdict(self))

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return what the child must inherit."""
        return tuple(fd for fd in (self.board, *self.arenas, *self.leases, self.channel) if fd >= 0)


def read_spawn(text: str) -> Spawn:
    """Return the spawn from its command-line argument."""
    raw = json.loads(text)
    return Spawn(**{**raw, "arenas": tuple(raw["arenas"]), "leases": tuple(raw["leases"])})


def plan_path(directory: str) -> Path:
    """Return where the supervisor puts the plan."""
    return Path(directory) / "plan.json"


def sink_endpoint(directory: str, epoch: int) -> str:
    """Return where the broker takes returning hops, new in each epoch."""
    return f"ipc://{directory}/sink.{epoch:016x}"


def worker_endpoint(directory: str, process: int, incarnation: int) -> str:
    """Return where one incarnation of a process takes hops; never used by another."""
    return f"ipc://{directory}/{process}.{incarnation}"


def die_with_parent(parent: int, signal_number: int = signal.SIGKILL) -> None:
    """Ask the kernel to send *signal_number* when the supervisor dies; end at once if it is dead already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def stop_when_told() -> None:
    """Let a signal to stop end this process with code 0, through every ``finally`` on the way: until a server serves, nothing was
    accepted. The supervisor puts its own handlers in their place.
    """
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def stop(*_: object) -> None:
        # A second one must not disturb what the first one ends.
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        sys.exit(0)

    for number in signals:
        signal.signal(number, stop)
