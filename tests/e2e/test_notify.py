"""A server under a service manager: it says when it is ready, that it lives, and that it ends."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from places import StartServer
from server import PATIENCE_S, wait_until

WATCHDOG_US = 500_000


def next_of(manager: socket.socket, wanted: str) -> None:
    """Receive until *wanted* has come."""
    while manager.recv(4096).decode() != wanted:
        pass


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
        while drop_one(manager):
            pass
        next_of(manager, "WATCHDOG=1")

        server.signal(signal.SIGTERM)
        next_of(manager, "STOPPING=1")
        assert server.wait() == 0
    (place / "notify").unlink()


def drop_one(manager: socket.socket) -> bool:
    """Throw away one datagram that has come already; False when there is none."""
    try:
        manager.recv(4096, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    return True
