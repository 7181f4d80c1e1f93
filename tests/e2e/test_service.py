"""A server under a service manager: it says when it is ready, that it lives, and that it ends; and the example unit."""

from __future__ import annotations

import configparser
import contextlib
import os
import shlex
import signal
import socket
from pathlib import Path

import configs
import numpy as np
import pytest
from places import StartServer
from server import PATIENCE_S, ROOT, Server, wait_until
from stages_for_tests import HANG

import run
from clients import Client, ConnectionLost, ServerUnreachable

WATCHDOG_US = 500_000
MANY = 100


def next_of(manager: socket.socket, wanted: str) -> None:
    """Receive until *wanted* has come."""
    heard: list[str] = []
    while wanted not in heard[-1:]:
        assert len(heard) < MANY, heard
        heard.append(manager.recv(4096).decode())


def drop_what_came(manager: socket.socket) -> None:
    """Throw away what was said until now."""
    manager.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            manager.recv(4096)
    manager.settimeout(PATIENCE_S)


def test_a_service_manager_hears_of_a_servers_life(make_server: StartServer, place: Path) -> None:
    """Nothing before every lane is served; the watchdog is fed again once a killed broker has its successor."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{place}/notify")
        manager.settimeout(PATIENCE_S)
        environment = {"NOTIFY_SOCKET": f"{place}/notify", "WATCHDOG_USEC": str(WATCHDOG_US)}
        server = make_server("[lane.echo]", environment=environment).start()
        next_of(manager, "READY=1")
        next_of(manager, "WATCHDOG=1")

        os.kill(server.child("broker"), signal.SIGKILL)
        wait_until(lambda: server.events("broker_died"), "the broker's death")
        drop_what_came(manager)
        next_of(manager, "WATCHDOG=1")

        server.signal(signal.SIGTERM)
        next_of(manager, "STOPPING=1")
        assert server.wait() == 0
    (place / "notify").unlink()


class Manager:
    """What systemd does for the unit: Restart=always, and the watchdog. *silence_s* is its WatchdogSec."""

    def __init__(self, server: Server, hears: socket.socket, *, silence_s: float) -> None:
        self._server = server
        self._hears = hears
        self._silence_s = silence_s

    def start(self) -> None:
        """Start the server and wait until it says that it serves."""
        self._server.launch()
        self._hears.settimeout(PATIENCE_S)
        next_of(self._hears, "READY=1")

    def wait_for_end(self) -> None:
        """Wait until the server has ended, or is silent for so long that it is killed."""
        self._hears.settimeout(self._silence_s)
        with contextlib.suppress(TimeoutError):
            while self._server.poll() is None:
                self._hears.recv(4096)
        self._server.kill()


def test_a_server_that_ends_or_stands_still_is_started_anew(make_server: StartServer, place: Path) -> None:
    """What is in flight is lost, nobody is there for a while, and then the same client is served again."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears:
        hears.bind(f"{place}/notify")
        environment = {"NOTIFY_SOCKET": f"{place}/notify", "WATCHDOG_USEC": str(WATCHDOG_US)}
        server = make_server(configs.misbehaving(idempotent=False, hang_limit_ms=60_000), environment=environment)
        manager = Manager(server, hears, silence_s=10.0)
        manager.start()
        with Client(server.endpoint, timeout_s=PATIENCE_S) as client:
            for number in (signal.SIGKILL, signal.SIGSTOP):
                call = client.submit("bad", {"payload": np.full(4, HANG, np.uint8)})
                assert client.infer("echo", {"payload": np.ones(4, np.uint8)})["payload"].tolist() == [1] * 4
                server.signal(number)
                manager.wait_for_end()
                with pytest.raises(ConnectionLost):
                    call.result()
                with pytest.raises(ServerUnreachable):
                    client.infer("echo", {"payload": np.ones(4, np.uint8)}, budget_us=300_000)

                manager.start()
                assert client.infer("echo", {"payload": np.ones(4, np.uint8)})["payload"].tolist() == [1] * 4
        assert server.stop() == 0
    (place / "notify").unlink()


def test_the_unit_starts_a_command_that_there_is() -> None:
    """Under systemd's eyes, and stopped by one signal to the supervisor alone."""
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "examples" / "slotline.service")
    service = unit["Service"]

    command = shlex.split(service["ExecStart"])
    assert Path(command[0]).name == "slotline"
    run._parser().parse_args(command[1:])
    assert (service["Type"], service["Restart"], service["KillMode"]) == ("notify", "always", "mixed")
    assert int(service["WatchdogSec"]) > 0
