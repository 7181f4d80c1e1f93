"""What every peer does with a request: the same functions, models and libraries as Slotline's lanes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import simplejpeg
from numpy.typing import NDArray

from bench.lanes import PHOTO_PIXELS, THRESHOLD, photo_row, tile_means, top5

FRAME_SHAPE = (1080, 1920, 3)


def session() -> Any:
    """Return the model that the environment names, with one thread: processes use cores better."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(os.environ["PEER_MODEL"], options, providers=["CPUExecutionProvider"])


def ticks(model: Any, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scores (rows, 3) of (rows, 64)."""
    scores: NDArray[np.float32] = model.run(None, {"x": rows})[0]
    return scores


def photos(model: Any, jpegs: Sequence[bytes]) -> list[dict[str, NDArray[Any]]]:
    """Return the five best ``classes`` (int32) and their ``scores`` (float32) of each photo, run as one batch."""
    rows = np.empty((len(jpegs), 3, PHOTO_PIXELS, PHOTO_PIXELS), np.float32)
    for row, jpeg in zip(rows, jpegs, strict=True):
        photo_row(simplejpeg.decode_jpeg(jpeg, "RGB"), row)
    logits = model.run(None, {"input": rows})[0]
    found: list[dict[str, NDArray[Any]]] = []
    for row in logits:
        found.append({"classes": np.empty(5, np.int32), "scores": np.empty(5, np.float32)})
        top5({"logits": row[None]}, found[-1], None)
    return found


def frame(content: Any) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return means (9, 16, 3) and flags (9, 16) of a raw frame."""
    means = tile_means(np.frombuffer(content, np.uint8).reshape(FRAME_SHAPE))
    return means, means.max(axis=2) > THRESHOLD
