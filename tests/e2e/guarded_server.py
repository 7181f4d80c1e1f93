"""A server that takes clients with keys only, on a TCP port, and the keys of those that try."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import configs
import zmq
from server import Server, wait_until

from schemas.key_files import KeyPair, write_key_pair

SERVER_KEY, CLIENTS = "server.pub", "clients"
CURVE = f'[curve]\nsecret_key = "server.secret"\nclients = "{CLIENTS}"\n[lane.echo]\nslots = 64\nmax_encoded_bytes = 65_536\n'


class GuardedServer(Server):
    """Serves an ``echo`` lane, and the lane ``pair`` of ``configs.waiting``.

    Args:
        port: where it listens; ``*`` is any, and then the endpoint is known once it is ready.
    """

    def __init__(self, place: Path, port: str = "*") -> None:
        super().__init__(place, configs.waiting(str(place)) + CURVE)
        self.endpoint = f"tcp://127.0.0.1:{port}"
        (place / CLIENTS).mkdir()
        self.make_keys("server")

    def wait_ready(self) -> GuardedServer:
        """Wait for the ready line and take the endpoints from it."""
        wait_until(lambda: self._out.stat().st_size > 0 or self.poll() is not None, "a ready line")
        line = self.ready_line()
        assert line.startswith("ready tcp://127.0.0.1:"), line + self.errors()
        _, self.endpoint, control = line.split()
        self.control = control.removeprefix("control=")
        return self

    def make_keys(self, name: str) -> KeyPair:
        """Make the pair of *name*, which is on no list yet."""
        public, secret = zmq.curve_keypair()
        pair = KeyPair(public.decode(), secret.decode())
        write_key_pair(self.place, name, pair)
        return pair

    def put_on_list(self, name: str) -> None:
        """Let the client *name* come in; its keys are made when there are none, and the broker has seen it afterwards."""
        if not (self.place / f"{name}.pub").exists():
            self.make_keys(name)
        shutil.copy(self.place / f"{name}.pub", self.place / CLIENTS)
        self._wait_listed("added", name)

    def take_off_list(self, name: str) -> None:
        """Let the client *name* not come in any more, and wait until the broker has seen it."""
        (self.place / CLIENTS / f"{name}.pub").unlink()
        self._wait_listed("removed", name)

    def _wait_listed(self, change: str, name: str) -> None:
        """Wait until the last list that mentions *name* is one that *change* says."""
        if self._process is None:
            return
        wait_until(lambda: self._last_change(name) == change, f"{name} {change}")

    def _last_change(self, name: str) -> str:
        found = ""
        for event in self.events("allow_list"):
            found = next((change for change in ("added", "removed") if name in event[change]), found)
        return found

    def keys_of(self, name: str) -> dict[str, Any]:
        """Return what a Client of *name* is given as keys."""
        return {"server_key": self.place / SERVER_KEY, "key_file": self.place / f"{name}.secret"}
