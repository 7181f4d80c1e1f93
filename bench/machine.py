"""What a figure was measured on: processor, kernel, versions, revision; and the private directory that its sockets live in."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import zmq

from bench.processes import REPO
from broker import accelerator

PACKAGES = ("pyzmq", "numpy", "onnxruntime", "flatbuffers")


@contextlib.contextmanager
def private_directory() -> Iterator[Path]:
    """Yield a new directory that only this user may enter, removed with everything in it at the end."""
    with tempfile.TemporaryDirectory(prefix="slotline-") as name:
        yield Path(name)


def describe() -> dict[str, str | int | float]:
    """Return what a reader needs to compare a figure with one of another machine."""
    facts: dict[str, str | int | float] = {
        "cpu": _cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "libzmq": zmq.zmq_version(),
        "accelerator": accelerator.load()[1] or "in use",
        "revision": _revision(),
    }
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            facts[package] = importlib.metadata.version(package)
    return facts


def _cpu_name() -> str:
    """Return the processor's name as the kernel gives it."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _revision() -> str:
    """Return the commit that was measured, with "+" when files differ from it; "unknown" outside a checkout."""
    try:
        git = ["git", "-C", str(REPO), "describe", "--always", "--dirty=+", "--abbrev=12"]
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
