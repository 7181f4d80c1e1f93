"""What systemd hears of the supervisor, over a real datagram socket; time is a number."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.notify import Notifier

SECOND_NS = 1_000_000_000


class Manager:
    """The other end: what a service manager receives."""

    def __init__(self, address: str) -> None:
        self.environment = {"NOTIFY_SOCKET": address.replace("\0", "@")}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        """Return what has come since the last time."""
        texts = []
        while True:
            try:
                texts.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return texts

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """A manager whose socket is a file or has an abstract name."""
    listening = Manager(f"{tmp_path}/notify" if request.param == "file" else f"\0slotline-test-{os.getpid()}")
    yield listening
    listening.close()


def test_ready_and_stopping_are_said(manager: Manager) -> None:
    """Each as one datagram."""
    notifier = Notifier(manager.environment)
    notifier.ready()
    notifier.stopping()

    assert manager.heard() == ["READY=1", "STOPPING=1"]


def test_the_watchdog_is_fed_at_half_of_its_time(manager: Manager) -> None:
    """However often the supervisor looks; not before it is ready, for nobody watches yet."""
    notifier = Notifier({**manager.environment, "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())})
    notifier.alive(0)
    notifier.ready()

    for now_ns in (5 * SECOND_NS, 5 * SECOND_NS + 1, 6 * SECOND_NS - 1, 6 * SECOND_NS, 8 * SECOND_NS):
        notifier.alive(now_ns)

    assert manager.heard() == ["READY=1"] + ["WATCHDOG=1"] * 3


@pytest.mark.parametrize("watchdog", [{}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}])
def test_without_a_watchdog_of_ours_it_is_not_fed(manager: Manager, watchdog: dict[str, str]) -> None:
    """None is asked for, or that of another process, or nobody can read it."""
    notifier = Notifier({**manager.environment, **watchdog})
    notifier.ready()
    notifier.alive(SECOND_NS)

    assert manager.heard() == ["READY=1"]


def test_a_manager_that_is_gone_harms_nobody(manager: Manager, tmp_path: Path) -> None:
    """The server serves on."""
    Notifier({"NOTIFY_SOCKET": f"{tmp_path}/nobody"}).ready()
    Notifier({}).ready()

    assert manager.heard() == []
