"""Leases of the C++ client, by a program of its own under sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lease_stages import lease_config
from places import StartServer
from server import PATIENCE_S
from test_cpp_client import programs
from test_leases import check_all_free

__all__ = ["programs"]

STEPS = 10


def test_frames_are_written_read_and_answered_in_place(programs: Path, make_server: StartServer, place: Path) -> None:
    """What the Python client does too; afterwards every lease is free."""
    server = make_server(lease_config(place)).start()
    command = [str(programs / "lease_probe"), server.endpoint, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)

    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in said if not line.startswith("ok ")] == []
    assert len(said) == STEPS
    check_all_free(server)
