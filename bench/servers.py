"""Slotline itself as a side of the benchmark: a server from a config, ready, with its process number."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import REPO, running

FUSED = (("decode", "preprocess", "infer", "postprocess"),)
STAGES = (("decode",), ("preprocess",), ("infer",), ("postprocess",))
Cut = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready. *pid* is None when it is not known which process serves."""

    endpoint: str
    pid: int | None


@contextlib.contextmanager
def serving(directory: Path, config: str | Path) -> Iterator[Server]:
    """Serve the config file *config*, or a preset's name, at an endpoint in *directory*."""
    endpoint = f"ipc://{directory}/s"
    argv: list[str | Path] = [sys.executable, REPO / "run.py", "serve", config, "--endpoint", endpoint, "--log-level", "warning"]
    with running([*argv, "--parent", str(os.getpid())], log=directory / "serve.log") as process:
        yield Server(process.words[1], process.pid)


@contextlib.contextmanager
def serving_text(directory: Path, text: str) -> Iterator[Server]:
    """Serve a config given as *text*."""
    path = directory / "config.toml"
    path.write_text(text, "utf-8")
    with serving(directory, path) as server:
        yield server


def lane_table(name: str, settings: Mapping[str, object], tables: Mapping[str, Mapping[str, object]] | None = None) -> str:
    """Return ``[lane.NAME]`` with *settings*, and a table ``[lane.NAME.STAGE]`` for each of *tables*."""
    blocks = [(f"lane.{name}", settings), *((f"lane.{name}.{stage}", keys) for stage, keys in (tables or {}).items())]
    return "\n".join(f"[{head}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in keys.items()) for head, keys in blocks)


def _toml(value: object) -> str:
    """Return *value* as TOML: numbers, texts and lists look as in JSON, a table does not."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value)
