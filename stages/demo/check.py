"""Compare the demo's answers with a direct run of its models, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .reference import reference_parts, reference_ticks

Verdict = tuple[str, float, NDArray[np.float32]]


def load_features(path: Path) -> NDArray[np.float32]:
    """Return the market features (rows, 67) float32."""
    with np.load(path) as arrays:
        features: NDArray[np.float32] = arrays["features"]
    return features


def check_parts(directory: Path, answers: Mapping[str, Verdict]) -> int:
    """Return how many of the answers, by file name, differ from a direct run in verdict, score or boxes."""
    names = sorted(answers)
    direct = reference_parts(directory / name for name in names)
    return sum(not _same(answers[name], expected) for name, expected in zip(names, direct, strict=True))


def check_ticks(features: NDArray[np.float32], outputs: Mapping[str, NDArray[np.float32]]) -> int:
    """Return how many rows of *outputs* (count, 1), for the features cycled, differ from a direct run."""
    direct = reference_ticks(features)
    count = len(next(iter(outputs.values())))
    differs = np.zeros(count, np.bool_)
    for name, expected in direct.items():
        differs |= (outputs[name].view(np.uint32) != np.resize(expected, (count, 1)).view(np.uint32)).any(axis=1)
    return int(differs.sum())


def _same(answer: Verdict, expected: Verdict) -> bool:
    """True when two judgements are the same to the last bit."""
    return (
        answer[0] == expected[0]
        and np.float32(answer[1]) == np.float32(expected[1])
        and answer[2].tobytes() == expected[2].tobytes()
    )
