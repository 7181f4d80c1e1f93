"""Stages and the config of the lease tests, found as ``lease_stages:NAME`` in the server's processes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]

FRAME_BYTES = 300_000
TILE = 1000
FUSED = '[["decode", "preprocess", "postprocess"]]'
EACH = '[["decode"], ["preprocess"], ["postprocess"]]'


def tile_sums(image: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the sums of the first 8 tiles of a flat image."""
    flat = image.reshape(-1)[: 8 * TILE]
    return flat.reshape(8, -1).sum(axis=1, dtype=np.uint64)


def tiles(inputs: Tensors, outputs: Tensors, params: Any) -> dict[str, tuple[int, ...]]:
    """Say what is in the image, and turn it about."""
    image = inputs["image"].reshape(-1)
    outputs["sums"][:] = tile_sums(image)
    outputs["turned"][: image.size] = image[::-1]
    return {"turned": (image.size,)}


def wait_in(inputs: Tensors, outputs: Tensors, params: Any) -> dict[str, tuple[int, ...]]:
    """Read the image, say so by a file, wait until another file appears, and read it again."""
    image = inputs["image"].reshape(-1)
    outputs["before"][:] = tile_sums(image)
    place = Path(params["place"])
    (place / "reading").touch()
    while not (place / "go").exists():
        time.sleep(0.005)
    outputs["after"][:] = tile_sums(image)
    return {}


def lease_config(place: Path, *, processes: str = FUSED, count: int = 2, frames: int = 3) -> str:
    """Return lanes that read inputs where they lie: ``tiles``, ``slow`` (waits for a file), ``grey`` (raw images or files), and
    ``echo``, which answers with them.
    """
    return f"""
[leases]
count = {count}
frames = {frames}
frame_bytes = {FRAME_BYTES}
[lane.tiles]
slots = 4
max_encoded_bytes = {FRAME_BYTES}
idempotent = true
processes = {processes}
workers = "plain"
[lane.tiles.decode]
use = "lease_stages:tiles"
[[lane.tiles.decode.outputs]]
name = "sums"
dtype = "UINT64"
shape = [8]
[[lane.tiles.decode.outputs]]
name = "turned"
dtype = "UINT8"
shape = [-1]
max_shape = [{FRAME_BYTES}]
[lane.echo]
slots = 4
max_encoded_bytes = {FRAME_BYTES}
processes = {processes}
workers = "plain"
[lane.grey]
slots = 4
max_encoded_bytes = 100_000
max_pixels = 100_000
processes = {processes}
workers = "plain"
[lane.grey.decode]
use = "image"
color = "grey"
[lane.slow]
slots = 2
max_encoded_bytes = 64
idempotent = true
hang_limit_ms = 60_000
default_budget_us = 50_000_000
[lane.slow.decode]
use = "lease_stages:wait_in"
place = "{place}"
outputs = [{{ name = "before", dtype = "UINT64", shape = [8] }}, {{ name = "after", dtype = "UINT64", shape = [8] }}]
"""


def model_lanes(*, processes: str) -> str:
    """Return two lanes of one model: ``rows`` takes one row, whose place in a slot is fixed, ``many`` up to 16."""
    model = Path(__file__).parents[2] / "stages" / "demo" / "trading_mlp.onnx"
    cut = processes.replace('"preprocess"', '"preprocess", "infer"')
    cut = cut.replace('["preprocess", "infer"]', '["preprocess"], ["infer"]')
    return "".join(
        f"""
[lane.{name}]
model = "{model}"
slots = 8
max_rows = {rows}
processes = {cut}
workers = "model"
"""
        for name, rows in (("rows", 1), ("many", 16))
    )
