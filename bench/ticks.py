"""The tick workload: real market feature rows, each an ordinary one-frame request for the lane ``ticks``."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from bench.load import Headers
from bench.processes import REPO
from schemas.status import ConfigError
from schemas.templates import RequestTemplate, TensorForm
from schemas.tensors import DType

LANE = "ticks"
INPUT = "features"
DEMO = REPO / "stages" / "demo"
ROWS = DEMO / "trading_test.npz"
MODEL = DEMO / "trading_mlp.onnx"


def add_rows_option(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the option that names the file of feature rows."""
    parser.add_argument(
        "--rows", type=Path, default=ROWS, help="file with an array 'features', one tick a row (default: the demo's)"
    )


def tick_headers(rows_path: Path = ROWS) -> Headers:
    """Return one request header for each row of *rows_path*.

    Args:
        rows_path: .npz with ``features``, (rows, 67) float32.

    Raises:
        ConfigError: the file is missing or holds something else.
    """
    try:
        features = np.load(rows_path)[INPUT]
    except (OSError, KeyError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"no array '{INPUT}' in it"
        raise ConfigError(f"{rows_path}: {reason}: name a file of ticks with --rows") from None
    if features.ndim != 2 or features.dtype != np.float32 or not len(features):
        raise ConfigError(f"{rows_path}: '{INPUT}' is {features.dtype} {features.shape}, expected float32 (rows, features)")
    form = TensorForm(INPUT, DType.FP32, shape=(1, features.shape[1]), nbytes=features[0].nbytes, inline=True)
    template = RequestTemplate(LANE, [form])
    return Headers.of([template.header(0, 0, [row.tobytes()]) for row in features])
