"""Fixtures of tests with real servers: a short directory each, and the check that nothing is left in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from raw_client import close_all
from server import Server, left_behind, memory_of, wait_until

StartServer = Callable[..., Server]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a name short enough for ipc; afterwards no process, socket, lock or memory of ours is left there."""
    made = Path(tempfile.mkdtemp(prefix="slt-"))
    before = memory_of(os.getpid())
    yield made
    try:
        # A killed supervisor's children end by a signal from the kernel: soon, not at once.
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not left_behind(made), "the end", timeout_s=5.0)
        assert left_behind(made) == []
        assert memory_of(os.getpid()) == before
    finally:
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def make_server(place: Path) -> Iterator[StartServer]:
    """Make servers in the test's own directory; those that still run are ended, and their stderr shown when the test fails."""
    made: list[Server] = []

    def make(config: str, **options: object) -> Server:
        server = Server(place, config, **options)  # type: ignore[arg-type]
        made.append(server)
        return server

    yield make
    close_all()
    for server in made:
        print(server.errors()[-4000:])
        server.end()
