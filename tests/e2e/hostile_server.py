"""The server that is attacked: the lanes of the hostile cases, a lane for a good client, and what it takes of the machine."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import configs
from door import LANES, MAX_MESSAGE_BYTES
from load import DigestLoad
from raw_client import statistics
from server import ROOT, Server, wait_until

MIB = 1 << 20
MAX_CLIENTS = 64


def small_config(more: str = "") -> str:
    """Return a config with the good client's lane alone; *more* are lines of its [server] table."""
    own = f"drain_s = 10\nmax_message_bytes = {MAX_MESSAGE_BYTES}\nmax_clients = {MAX_CLIENTS}\n{more}"
    return configs.digests(slots=16).replace("drain_s = 10", own)


def config(more: str = "") -> str:
    """Return a config with the lanes of the hostile cases too."""
    return small_config(more) + LANES.replace('model = "', f'model = "{ROOT}/stages/demo/')


class HostileServer(Server):
    """A server on a TCP port that no other program has; it keeps the port when its broker dies."""

    def __init__(self, place: Path, text: str) -> None:
        super().__init__(place, text)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.endpoint = f"tcp://127.0.0.1:{free.getsockname()[1]}"

    def wait_ready(self) -> HostileServer:
        """Wait for the ready line and take the endpoints from it."""
        wait_until(lambda: self._out.stat().st_size > 0 or self.poll() is not None, "a ready line")
        line = self.ready_line()
        assert line.startswith("ready "), line + self.errors()
        _, self.endpoint, control = line.split()
        self.control = control.removeprefix("control=")
        return self

    def resident_bytes(self) -> int:
        """Return the memory that the broker has."""
        status = Path(f"/proc/{self.child('broker')}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def descriptors(self) -> int:
        """Return how many descriptors the broker has open."""
        return len(os.listdir(f"/proc/{self.child('broker')}/fd"))

    def assert_unharmed(self) -> None:
        """Fail unless every process lives, every request has ended, the books balance, and no fault of ours was met."""
        wait_until(lambda: statistics(self.control)["ledger.in_flight"] == 0, "the last answer")
        stats = statistics(self.control)
        assert stats["ledger.balanced"]
        assert "ledger.codes.INTERNAL" not in stats
        assert self.deaths() == []
        for event in ("broker_died", "killed_broker", "codec_fault", "uncaught", "killed_hanging"):
            assert self.events(event) == []


def under_attack(server: HostileServer, attack: Callable[[DigestLoad], None], *, seed: int) -> None:
    """Run *attack* beside a client that is served, which must get every one of its answers; *attack* lets it work in between."""
    good = DigestLoad(server.endpoint, seed=seed)
    good.run_for(0.1)
    attack(good)
    good.run_for(0.1)
    good.finish()
    good.close()
    server.assert_unharmed()
