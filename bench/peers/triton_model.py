"""The model that Triton's Python backend loads: see ``triton_app.py``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as triton

# Triton gives its helper process a PYTHONPATH of its own.
sys.path.append(os.environ["PEER_REPO"])

from bench.peers import work


class TritonPythonModel:
    """One instance."""

    def initialize(self, args: object) -> None:
        """Load the model."""
        self.model = work.session() if "PEER_MODEL" in os.environ else None
        self.run = {"tick": self.tick, "photo": self.photo, "frame": self.frame}[os.environ["PEER_WORKLOAD"]]

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer the requests of one batch."""
        return self.run(requests)

    def tick(self, requests: Sequence[Any]) -> list[Any]:
        """Run all rows at once."""
        parts = [_input(request, "x") for request in requests]
        scores = work.ticks(self.model, np.concatenate(parts))
        ends = np.cumsum([len(part) for part in parts])
        return [_response(y=scores[end - len(part) : end]) for part, end in zip(parts, ends, strict=True)]

    def photo(self, requests: Sequence[Any]) -> list[Any]:
        """Decode, preprocess, and run all photos at once."""
        found = work.photos(self.model, [_input(request, "jpeg").reshape(-1)[0] for request in requests])
        return [_response(classes=one["classes"][None], scores=one["scores"][None]) for one in found]

    def frame(self, requests: Sequence[Any]) -> list[Any]:
        """Compute the statistics of each frame's tiles."""
        found = [work.frame(_input(request, "frame").reshape(-1)) for request in requests]
        return [_response(means=means, flags=flags) for means, flags in found]


def _input(request: Any, name: str) -> Any:
    return triton.get_input_tensor_by_name(request, name).as_numpy()


def _response(**outputs: Any) -> Any:
    return triton.InferenceResponse([triton.Tensor(name, values) for name, values in outputs.items()])
