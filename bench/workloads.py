"""The workloads: for each the lane that serves it and the requests that are sent to it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.inputs import requests_of
from bench.lanes import TILE, TOUCHED
from bench.processes import REPO
from bench.requests import Requests
from bench.rows import MissingError
from bench.servers import FUSED, Cut, lane_table
from schemas.arrays import Encoded, describe

DEMO = REPO / "stages" / "demo"
DATA_VARIABLE = "SLOTLINE_BENCH_DATA"
PHOTO_MODEL = "effnet_lite0.onnx"
PHOTO_SIZE = (640, 480)
# 1080p and 2160p, three bytes a pixel: 6.2 and 24.9 MB.
FRAMES = {"frame": (1080, 1920, 3), "frame25": (2160, 3840, 3)}
# Far above every measured latency: what is late is slow, not refused.
BUDGET_US = 30_000_000
_NO_DATA = (
    f"the photo workload needs {PHOTO_MODEL} (EfficientNet-Lite0, input [n, 3, 224, 224]): name a directory that has it, or "
    f"has it below models/, with --data DIR or {DATA_VARIABLE}"
)
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Workload:
    """One lane and what is sent to it.

    Args:
        rows: the inputs of different requests, sent in turn.
        settings: keys of the lane's table.
        stages: keys of its stages' tables.
        outstanding: requests under way that keep both cores busy.
    """

    lane: str
    rows: Rows
    settings: Mapping[str, object]
    stages: Mapping[str, Mapping[str, object]]
    outstanding: int

    @property
    def requests(self) -> Requests:
        """The rows as messages."""
        return requests_of(self.lane, self.rows)

    @property
    def largest_bytes(self) -> int:
        """Bytes of the largest tensor."""
        return max(describe(value, name)[0][2] for row in self.rows for name, value in row.items())

    def config(self, cut: Cut = FUSED, replicas: int = 1, lease_frames: int = 0) -> str:
        """Return the text of a config that serves the lane, cut into processes, each *replicas* times.

        Args:
            lease_frames: of the one lease that the server lends; 0 = it lends none.
        """
        has_model = "model" in self.settings
        processes = [[stage for stage in part if has_model or stage != "infer"] for part in cut]
        keys = {**self.settings, "default_budget_us": BUDGET_US, "processes": [part for part in processes if part]}
        if replicas > 1:
            keys["replicas"] = {part[-1]: replicas for part in processes if part}
        limits = "[server]\nmax_in_flight = 65536\nmax_message_bytes = 134217728\n"
        if lease_frames:
            limits += f"[leases]\ncount = 1\nframes = {lease_frames}\nframe_bytes = {max(64, self.largest_bytes)}\n"
        return limits + lane_table(self.lane, keys, self.stages)


def tick() -> Workload:
    """67 market features, float32, to the demo's trading model."""
    settings = {
        "model": DEMO / "trading_mlp.onnx",
        "slots": 512,
        "max_encoded_bytes": 4096,
        "max_batch_size": 64,
        "backlog": 65536,
    }
    return Workload("ticks", [{"features": row[None]} for row in tick_features()], settings, {}, outstanding=256)


def tick_features() -> NDArray[np.float32]:
    """Return the demo's feature rows, (rows, 67)."""
    with np.load(DEMO / "trading_test.npz") as arrays:
        features: NDArray[np.float32] = arrays["features"]
    return features


def part() -> Workload:
    """Photos of parts, PNG, grey, 128 x 128, to the demo's surface model and its verdict."""
    photos = [path.read_bytes() for path in sorted((DEMO / "parts").glob("*.png"))]
    outputs = [
        {"name": "verdict", "dtype": "BYTES", "shape": [1], "max_bytes": 64},
        {"name": "score", "dtype": "FP32", "shape": [1]},
        {"name": "boxes", "dtype": "FP32", "shape": [-1, 6], "max_shape": [32, 6]},
    ]
    stages: dict[str, dict[str, object]] = {
        "decode": {"use": "image", "color": "grey"},
        "preprocess": {"use": "standardize"},
        "postprocess": {"use": "stages.demo.surface:verdict", "outputs": outputs},
    }
    settings = {
        "model": DEMO / "surface_qc.onnx", "slots": 64, "max_encoded_bytes": 65536, "max_pixels": 65536, "max_batch_size": 1,
        "backlog": 1024, "idempotent": True,
    }  # fmt: skip
    return Workload("parts", [{"image": Encoded(photo, "image/png")} for photo in photos], settings, stages, outstanding=32)


def photo(model: Path) -> Workload:
    """640 x 480 JPEGs to an ImageNet classifier *model*, and its five best classes.

    Their input is named as the model's is: a lane of pictures has no name of its own for it.
    """
    row = {"name": "input", "dtype": "FP32", "shape": [1, 3, 224, 224]}
    best = [{"name": "classes", "dtype": "INT32", "shape": [5]}, {"name": "scores", "dtype": "FP32", "shape": [5]}]
    stages: dict[str, dict[str, object]] = {
        "decode": {"use": "image", "color": "rgb"},
        "preprocess": {"use": "bench.lanes:photo", "outputs": [row]},
        "postprocess": {"use": "bench.lanes:top5", "outputs": best},
    }
    settings = {
        "model": model, "slots": 32, "max_encoded_bytes": 1_000_000, "max_pixels": 400_000, "max_batch_size": 1, "backlog": 1024,
        "idempotent": True,
    }  # fmt: skip
    return Workload("photos", [{"input": Encoded(jpeg, "image/jpeg")} for jpeg in photos()], settings, stages, outstanding=16)


def frame(name: str) -> Workload:
    """Raw frames of FRAMES[name], and the statistics of their tiles."""
    height, width, _ = FRAMES[name]
    rows, columns = height // TILE, width // TILE
    outputs = [
        {"name": "means", "dtype": "FP32", "shape": [rows, columns, 3]},
        {"name": "flags", "dtype": "BOOL", "shape": [rows, columns]},
    ]
    return _frames(name, {"postprocess": {"use": "bench.lanes:tiles", "outputs": outputs}})


def frame_seen(name: str) -> Workload:
    """The same frames to a function that only says how large they are: what the way itself costs."""
    outputs = [{"name": "nbytes", "dtype": "INT64", "shape": [1]}]
    return _frames(name, {"postprocess": {"use": "bench.lanes:seen", "outputs": outputs}})


def handed_over() -> Workload:
    """A frame of 2160p and one of 1 KB, to a function that reads as much of either: the hand-over of ``lease_flat``."""
    rng = np.random.default_rng(13)
    rows = [{"frame": rng.integers(0, 256, nbytes, dtype=np.uint8)} for nbytes in (int(np.prod(FRAMES["frame25"])), TOUCHED)]
    outputs = [{"name": "sum", "dtype": "INT64", "shape": [1]}]
    stages = {"postprocess": {"use": "bench.lanes:touched", "outputs": outputs}}
    # What lies in a lease takes no room in a slot.
    settings = {"slots": 8, "max_encoded_bytes": 4096, "idempotent": True}
    return Workload("handed", rows, settings, stages, outstanding=1)


def echo() -> Workload:
    """64 float32, back unchanged, from a lane without a model."""
    rows = np.random.default_rng(7).standard_normal((64, 1, 64)).astype(np.float32)
    settings = {"slots": 512, "max_encoded_bytes": 4096, "max_batch_size": 64, "backlog": 16384}
    return Workload("echo", [{"x": row} for row in rows], settings, {}, outstanding=256)


def _frames(name: str, stages: Mapping[str, Mapping[str, object]]) -> Workload:
    shape = FRAMES[name]
    nbytes = int(np.prod(shape))
    rng = np.random.default_rng(11)
    rows = [{"frame": rng.integers(90, 160, shape, dtype=np.uint8)} for _ in range(2)]
    settings = {"slots": 8, "max_encoded_bytes": nbytes, "backlog": 64, "backlog_bytes": 64 * nbytes, "idempotent": True}
    return Workload(name, rows, settings, stages, outstanding=4)


def photos() -> list[bytes]:
    """Return a few seeded JPEGs of PHOTO_SIZE, about 80 kB each: waves, discs and noise.

    Raises:
        MissingError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise MissingError("the photo workload needs Pillow: pip install 'slotline[cpu]'") from None
    rng = np.random.default_rng(20240607)
    width, height = PHOTO_SIZE
    y, x = np.mgrid[0:height, 0:width]
    found = []
    for _ in range(4):
        waves = np.stack([x * 0.3 + 40 * np.sin(y / 20), y * 0.5 + 30 * np.cos(x / 31), (x + y) * 0.2], -1) % 255
        picture = Image.fromarray(waves.astype(np.uint8))
        for _ in range(40):
            left, top, size = (int(rng.integers(limit)) for limit in (width, height, 120))
            ImageDraw.Draw(picture).ellipse((left, top, left + size, top + size), tuple(rng.integers(0, 255, 3).tolist()))
        noisy = np.clip(np.asarray(picture) + rng.normal(0, 6, (height, width, 3)), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, "JPEG", quality=88)
        found.append(file.getvalue())
    return found


def photo_model(data: Path | None) -> Path:
    """Return where the photo workload's model is.

    Args:
        data: a directory, None for that of the environment.

    Raises:
        MissingError: it is not there.
    """
    directory = data or (Path(os.environ[DATA_VARIABLE]) if os.environ.get(DATA_VARIABLE) else None)
    for place in () if directory is None else (directory, directory / "models"):
        if (place / PHOTO_MODEL).is_file():
            return (place / PHOTO_MODEL).resolve()
    raise MissingError(f"{_NO_DATA} (not in {directory})" if directory else _NO_DATA)


def by_name(data: Path | None) -> dict[str, Callable[[], Workload]]:
    """Return what makes each workload."""
    return {
        "tick": tick,
        "part": part,
        "photo": lambda: photo(photo_model(data)),
        "frame": lambda: frame("frame"),
        "frame25": lambda: frame("frame25"),
        "echo": echo,
    }
