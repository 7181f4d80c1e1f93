"""What the Python client gets for the demo's inputs, told as the examples of the other clients tell it."""

from __future__ import annotations

from typing import Any

import numpy as np

from clients import Client, Encoded
from stages.demo import parts_path


def judged_by_python(client: Client) -> list[dict[str, Any]]:
    """Return what the Python client gets for the demo's photos, as the examples tell it."""
    files = sorted(parts_path().glob("*.png"))
    results = client.infer_many("qc", [{"image": Encoded(file.read_bytes(), "image/png")} for file in files])
    return [
        {
            "file": file.name,
            "verdict": result["verdict"][0].decode(),
            "score": result["score"].tobytes().hex(),
            "boxes_shape": list(result["boxes"].shape),
            "boxes": result["boxes"].tobytes().hex(),
        }
        for file, result in zip(files, results, strict=True)
    ]


def ticks_by_python(client: Client, features: np.ndarray[Any, Any]) -> list[str]:
    """Return the outputs of each row as hex, in the order of their names."""
    results = client.infer_many("ticks", [{"features": row[None]} for row in features])
    return ["".join(result[name].tobytes().hex() for name in sorted(result)) for result in results]


def fnv1a(text: bytes) -> str:
    """Return the examples' digest of *text*."""
    digest = 0xCBF29CE484222325
    for byte in text:
        digest = (digest ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return f"{digest:016x}"
