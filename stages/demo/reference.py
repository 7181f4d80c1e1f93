"""What the demo must give: the same models run directly, one input at a time, nothing of the pipeline but the rules.

Plain on purpose: it is what every answer of the demo is compared with, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.status import ConfigError
from schemas.tensors import unpack_bytes
from stages.demo import surface

DEMO_DIR = Path(__file__).parent
MAX_BOXES = 32


def reference_parts(paths: Iterable[Path]) -> list[tuple[str, float, NDArray[np.float32]]]:
    """Return ("OK" or "NG", score, boxes (count, 6)) of each picture, run alone."""
    session = _session("surface_qc.onnx")
    return [_judge(session.run(["prob"], {"image": _standardized(path)})[0]) for path in paths]


def reference_ticks(features: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Return each output of the market model as (count, 1), its rows run one at a time.

    Args:
        features: (count, 67) float32.
    """
    session = _session("trading_mlp.onnx")
    names = [output.name for output in session.get_outputs()]
    runs = [session.run(names, {"features": row[None]}) for row in features]
    return {name: np.concatenate([run[at] for run in runs]) for at, name in enumerate(names)}


def _session(file: str) -> Any:
    """Return a plain onnxruntime session of a demo model."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError(f"the demo needs onnxruntime ({error}): pip install 'slotline[cpu]'") from error
    return onnxruntime.InferenceSession(str(DEMO_DIR / file), providers=["CPUExecutionProvider"])


def _standardized(path: Path) -> NDArray[np.float32]:
    """Return a picture as the surface model's input (1, 1, height, width), as in its training."""
    from PIL import Image

    with Image.open(path) as image:
        grey = np.asarray(image.convert("L")).astype(np.float32)
    grey -= grey.mean()
    grey /= np.maximum(grey.std(), np.float32(8))
    return grey[None, None]


def _judge(prob: NDArray[np.float32]) -> tuple[str, float, NDArray[np.float32]]:
    """Return the verdict's three outputs for one picture."""
    outputs: dict[str, NDArray[Any]] = {
        "verdict": np.zeros(6, np.uint8),
        "score": np.zeros(1, np.float32),
        "boxes": np.zeros((MAX_BOXES, 6), np.float32),
    }
    shapes = surface.verdict({"prob": prob}, outputs, None)
    (word,), _ = unpack_bytes(outputs["verdict"].tobytes(), 1)
    return word.decode(), float(outputs["score"][0]), outputs["boxes"][: shapes["boxes"][0]]
