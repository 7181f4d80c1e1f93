"""Stages of the server that the tests of foreign clients share, as ``foreign_stages:NAME``. Run in the server's processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages_for_tests import Tensors, misbehave

# First byte of a request that makes the function raise, or claim more rows than its output has; see stages_for_tests for others.
RAISE, OVERFLOW = 4, 5


def obey(inputs: Tensors, outputs: Tensors, params: Any) -> dict[str, tuple[int, ...]]:
    """Echo the payload, unless its first byte says otherwise."""
    first = int(inputs["payload"].reshape(-1)[0])
    if first == RAISE:
        raise ValueError("told to fail")
    if first == OVERFLOW:
        return {"echo": (outputs["echo"].shape[0] + 1,)}
    return misbehave(inputs, outputs, params)


def repeat(inputs: Tensors, outputs: Tensors, params: Any) -> dict[str, tuple[int, ...]]:
    """Write as many rows of ones as the payload's first byte says."""
    rows = int(inputs["payload"].reshape(-1)[0])
    outputs["features"][:rows] = 1
    return {"features": (rows, *outputs["features"].shape[1:])}


def setup(config: Mapping[str, Any]) -> None:
    """Die as long as the file is there that the stage's table names."""
    if Path(config.get("dies_with", "/")).is_file():
        os._exit(1)
