"""Kill the inference process in the middle of its work and see that the server goes on: on a GPU, and likewise on the CPU."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.gpu.network import write_network
from clients import Client
from clients.local import local_server

ROOT = Path(__file__).resolve().parents[2]
SIDE, REQUESTS, KILLS = 32, 200, 2
AGAIN_S = 60.0
CONFIG = """
[server]
endpoint = "ipc://{directory}/s.ipc"
[lane.net]
model = "{directory}/network.onnx"
device = "{device}"
max_encoded_bytes = 20_000
max_batch_size = 8
default_budget_us = 50_000_000
"""


def kill_in_mid_batch(device: str, library: str) -> tuple[bool, dict[str, Any]]:
    """Serve a network, kill the process that has *library* mapped while requests are under way, and ask again.

    Returns:
        whether every request had its result, before and after each kill, and the results stayed the same; and the figures.
    """
    with tempfile.TemporaryDirectory(prefix="gc-") as directory:
        write_network(Path(directory) / "network.onnx", width=8, blocks=(1, 1), side=SIDE, classes=10)
        config = Path(directory) / "config.toml"
        config.write_text(CONFIG.format(directory=directory, device=device))
        command = [sys.executable, str(ROOT / "run.py"), "serve", str(config), "--json", "--log-level", "error"]
        with local_server(command) as server, Client(server.endpoint, timeout_s=AGAIN_S) as client:
            image = np.random.default_rng(0).standard_normal((1, 3, SIDE, SIDE)).astype(np.float32)
            first = client.infer("net", {"image": image})["scores"]
            wrong, killed, again_s = 0, [], []
            for _ in range(KILLS):
                calls = [client.submit("net", {"image": image}) for _ in range(REQUESTS)]
                killed.append(_kill(library))
                started = time.monotonic()
                wrong += sum(not np.allclose(call.result()["scores"], first, rtol=1e-3) for call in calls)
                again_s.append(round(time.monotonic() - started, 2))
    left = _processes(library)
    return not wrong and all(killed) and not left, {"killed": killed, "wrong": wrong, "seconds": again_s, "left": left}


def _kill(library: str) -> int:
    """Kill the process that has the library mapped and return its pid, 0 when there is none."""
    found = _processes(library)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return found[0] if found else 0


def _processes(library: str) -> list[int]:
    """Return the other processes of this session that have a library of this name mapped."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if os.getsid(int(entry.name)) == os.getsid(0) and library in (entry / "maps").read_text():
                found.append(int(entry.name))
    return found
