"""The bare limits, what ZeroMQ itself does on this machine: libzmq's C proxy with an echo worker, one ipc round trip, one frame.

The proxy is C in every case. Its worker is two pyzmq calls (``send_multipart(recv_multipart())``), the least that an ordinary
Python server does for a request, or C; the two differ by a factor of 2 to 4, so both are measured.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.build import build
from bench.processes import running


@contextlib.contextmanager
def proxy_echo(directory: Path, *, worker: str = "python") -> Iterator[str]:
    """Run the C proxy with one echo worker, "c" or "python", and yield the endpoint of its front."""
    front, back = f"ipc://{directory}/{worker}.front", f"ipc://{directory}/{worker}.back"
    module = [sys.executable, "-m", "bench.proxy"]
    echo: list[str | Path] = [build("echo"), "connect", back] if worker == "c" else [*module, "worker", back]
    with (
        running([*module, "relay", front, back], log=directory / "proxy.log"),
        running(echo, log=directory / "echo.log"),
    ):
        yield front


@contextlib.contextmanager
def ipc_echo(directory: Path) -> Iterator[str]:
    """Run a ROUTER that sends everything back and yield its endpoint."""
    endpoint = f"ipc://{directory}/echo"
    with running([build("echo"), "bind", endpoint], log=directory / "echo.log"):
        yield endpoint


@contextlib.contextmanager
def ipc_sink(directory: Path) -> Iterator[str]:
    """Run a ROUTER that copies each payload once and answers with its header alone; yield its endpoint."""
    endpoint = f"ipc://{directory}/sink"
    with running([build("echo"), "sink", endpoint], log=directory / "sink.log"):
        yield endpoint
