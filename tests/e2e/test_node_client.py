"""The Node client: what the ``foreign_*.py`` ask of every client."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from foreign_cases import ForeignClientCases
from foreign_connections import ConnectionCases
from foreign_deaths import DeathCases
from foreign_keys import KeyCases, guarded_server
from foreign_lanes import foreign_server
from foreign_probe import unavailable
from server import PATIENCE_S, ROOT

__all__ = ["foreign_server", "guarded_server"]

PACKAGE = ROOT / "clients" / "node"
OLDEST = 20


@pytest.fixture(scope="module")
def node() -> str:
    """Node's program, with the packages that the client needs installed."""
    program = shutil.which("node")
    if program is None:
        unavailable(f"no node; cure: install Node {OLDEST} or later")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    if int(version.lstrip("v").partition(".")[0]) < OLDEST:
        unavailable(f"node is {version.strip()}; cure: install Node {OLDEST} or later")
    if not (PACKAGE / "node_modules" / "zeromq").exists():
        unavailable("the Node client's packages are not installed; cure: npm ci --ignore-scripts --prefix clients/node")
    return program


class TestNodeClient(ForeignClientCases, DeathCases, ConnectionCases, KeyCases):
    """All of them."""

    @pytest.fixture
    def probe_command(self, node: str) -> list[str]:
        """How the probe is started."""
        return [node, str(PACKAGE / "test" / "probe.mjs")]

    @pytest.fixture
    def demo_command(self, node: str) -> list[str]:
        """How the example is started."""
        return [node, str(PACKAGE / "example" / "demo.mjs")]
