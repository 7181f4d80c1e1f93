"""A server under a service manager: it says when it is ready, that it lives, and that it ends; and the example unit."""

from __future__ import annotations

import configparser
import contextlib
import os
import shlex
import signal
import socket
from pathlib import Path

from places import StartServer
from server import PATIENCE_S, ROOT, wait_until

import run

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
