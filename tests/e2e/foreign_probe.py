"""What the tests of clients in other languages share: the probe, a program that does as it is told, and what it is told.

The probe's commands are described in ``clients/cpp/test/slotline_probe.cpp``.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from server import PATIENCE_S

Reply = dict[str, Any]


def unavailable(reason: str) -> NoReturn:
    """Skip, or fail where these tests must run (REQUIRE_FOREIGN_CLIENTS=1)."""
    if os.environ.get("REQUIRE_FOREIGN_CLIENTS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def input_token(name: str, dtype: str, shape: Sequence[int], content: bytes | Sequence[bytes]) -> str:
    """Return one input as the probe reads it; *content* is a sequence of elements for BYTES."""
    dims = "x".join(map(str, shape)) or "-"
    text = content.hex() if isinstance(content, bytes) else ",".join(element.hex() or "-" for element in content)
    return f"{name}:{dtype}:{dims}:{text}"


def file_token(name: str, dtype: str, shape: Sequence[int], path: Path) -> str:
    """Return one input whose bytes are those of a file. Its path travels as hex: it may hold spaces and colons."""
    return f"{name}:{dtype}:{'x'.join(map(str, shape)) or '-'}:@{os.fsencode(path).hex()}"


def strided_token(name: str, dtype: str, memory: np.ndarray[Any, Any], view: np.ndarray[Any, Any]) -> str:
    """Return one input that lies in *memory* as *view*, a view of it, does."""
    first = view.__array_interface__["data"][0] - memory.__array_interface__["data"][0]
    order = "big" if memory.dtype.str.startswith(">") else "little"
    layout = f"{first}/{'x'.join(map(str, view.strides))}/{order}"
    return f"{name}:{dtype}:{'x'.join(map(str, view.shape))}:{memory.tobytes().hex()}:{layout}"


class Probe:
    """A running probe. Each command must be answered within PATIENCE_S, or the test fails."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Probe:
        """Return the probe; it ends after the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End it by the end of its input, and fail when it does not end well."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process.stdout.close()
        assert kind is not None or code == 0, f"the probe ended with {code}"

    def say(self, *words: object) -> None:
        """Give one command and do not wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self._process.stdin.flush()

    def hear(self) -> Reply:
        """Return the next answer."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        assert readable, "the probe hangs"
        line = self._process.stdout.readline()
        assert line, "the probe died"
        reply: Reply = json.loads(line.decode(errors="replace"))
        return reply

    def ask(self, *words: object) -> Reply:
        """Give one command and return its answer."""
        self.say(*words)
        return self.hear()

    def infer(self, model: str, *tensors: str, options: str = "-") -> Reply:
        """Make one call and return what came of it."""
        return self.ask("infer", model, options, *tensors)

    def connect(self, endpoint: str, timeout_ms: int = 30_000, **settings: object) -> Reply:
        """Connect anew."""
        reply = self.try_connect(endpoint, timeout_ms, **settings)
        assert "epoch" in reply, reply
        return reply

    def try_connect(self, endpoint: str, timeout_ms: int = 30_000, **settings: object) -> Reply:
        """Connect anew, or return the error. *settings*: connect=0, and the files server_key and key_file."""
        self.say_connect(endpoint, timeout_ms, **settings)
        return self.hear()

    def say_connect(self, endpoint: str, timeout_ms: int = 30_000, **settings: object) -> None:
        """Tell it to connect anew, and do not wait. The paths of files travel as hex: they may hold spaces."""
        words = [f"{name}={os.fsencode(value).hex() if isinstance(value, Path) else value}" for name, value in settings.items()]
        self.say("connect", endpoint, timeout_ms, *words)
