"""A server that takes clients with keys only, on a TCP port, and the keys of those that try."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import configs
import zmq
from raw_client import statistics
from server import Server, left_behind, wait_until

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


@contextlib.contextmanager
def guarded() -> Iterator[GuardedServer]:
    """Serve; ``good`` is on the list, ``stranger`` is not. At the end nobody has died and the books balance."""
    place = Path(tempfile.mkdtemp(prefix="slt-"))
    running = GuardedServer(place)
    try:
        running.put_on_list("good")
        running.make_keys("stranger")
        yield running.start()
        assert statistics(running.control)["ledger.balanced"]
        assert running.deaths() == []
        assert running.stop() == 0
        wait_until(lambda: not left_behind(place), "the end")
    finally:
        print(running.errors()[-4000:])
        running.kill()
        shutil.rmtree(place, ignore_errors=True)


def traces(server: GuardedServer) -> dict[str, Any]:
    """Return what the broker has counted of all that came to it, but for questions on its control socket."""
    stats = statistics(server.control)
    names = ("received", "malformed", "refused_questions", "refused", "answered", "undeliverable")
    return {name: stats[f"ledger.{name}"] for name in names}
