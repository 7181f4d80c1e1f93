"""Find out in a child process what GPU there is, and decide where each lane's model runs (by ``device_choice.py``)."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from select import select
from typing import Any

from schemas.config import LaneConfig
from schemas.plan import DevicePlan

from .device_choice import Facts, choose

# Importing onnxruntime with CUDA and making a context takes seconds, on a busy machine many.
LIMIT_S = 90


class Detector:
    """Decides for lane after lane; each GPU is looked at once, and none while no lane asks for one."""

    def __init__(self) -> None:
        self._facts: dict[int, Facts] = {}

    def choose(self, lane: LaneConfig) -> DevicePlan | None:
        """Return where the lane's model runs, None when it has none.

        Raises:
            DeviceError: the lane demands a GPU that cannot be used.
        """
        if lane.model is None:
            return None
        if lane.device == "cpu":
            return DevicePlan("cpu", "info", 'device = "cpu"')
        index = lane.gpu.device_id
        if index not in self._facts:
            self._facts[index] = probe(index)
        return choose(lane.device, self._facts[index], index=index, key=f"lane.{lane.name}.device")


def probe(index: int, limit_s: float = LIMIT_S) -> Facts:
    """Return what a child process finds out about GPU *index*; it is killed after *limit_s*, and then ``died_at`` says where."""
    reader, writer = os.pipe()
    command = [sys.executable, "-m", f"{__package__}.gpu_probe", str(writer), str(index), str(os.getpid())]
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    # What the libraries print about missing parts is told better by what the probe answers.
    child = subprocess.Popen(
        command,
        pass_fds=(writer,),
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(writer)
    try:
        return read_facts(_read_all(reader, time.monotonic() + limit_s))
    finally:
        os.close(reader)
        child.send_signal(signal.SIGKILL)
        child.wait()


def read_facts(text: str) -> Facts:
    """Return the facts from the probe's lines; a last line that was cut off is left out."""
    found: dict[str, Any] = {"died_at": "its start"}
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            found |= json.loads(line)
    known = {field.name for field in dataclasses.fields(Facts)}
    fields: dict[str, Any] = {name: value for name, value in found.items() if name in known}
    return Facts(**{**fields, "gpus": tuple(fields.get("gpus", ()))})


def _read_all(reader: int, until: float) -> str:
    """Return all that comes before the end, or before *until* on the monotonic clock."""
    parts: list[bytes] = []
    while select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()
