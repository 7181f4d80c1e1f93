"""The C++ client: built from the system's libraries, then what the ``foreign_*.py`` ask of every client."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest
from foreign_cases import ForeignClientCases
from foreign_connections import ConnectionCases
from foreign_deaths import DeathCases
from foreign_keys import KeyCases, guarded_server
from foreign_lanes import foreign_server
from foreign_probe import unavailable
from server import ROOT

__all__ = ["foreign_server", "guarded_server"]

SOURCE = ROOT / "clients" / "cpp"
BUILD = ROOT / "build" / "cpp"
# Ten times what it takes on two busy cores.
BUILD_S = 600.0
CURE = "apt-get install g++ cmake libzmq3-dev cppzmq-dev libflatbuffers-dev flatbuffers-compiler"


@pytest.fixture(scope="module")
def programs() -> Path:
    """The directory of the built programs."""
    for tool in ("g++", "cmake"):
        if shutil.which(tool) is None:
            unavailable(f"no {tool}; cure: {CURE}")
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        configured = _run("cmake", "-S", str(SOURCE), "-B", str(BUILD))
        if configured.returncode:
            unavailable(f"not everything is there to build the C++ client; cure: {CURE}\n{configured.stderr[-2000:]}")
        built = _run("cmake", "--build", str(BUILD), "--parallel", "2")
        assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-4000:]
    return BUILD


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)


class TestCppClient(ForeignClientCases, DeathCases, ConnectionCases, KeyCases):
    """All of them. The probe is built with the address and undefined-behaviour sanitizers."""

    @pytest.fixture
    def probe_command(self, programs: Path) -> list[str]:
        """How the probe is started."""
        return [str(programs / "slotline_probe")]

    @pytest.fixture
    def demo_command(self, programs: Path) -> list[str]:
        """How the example is started."""
        return [str(programs / "slotline_demo")]
