"""Stages of the built-in chaos lane, run in the server's processes: each digests every byte, so that a wrong one shows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]

DIGEST_BYTES = 16


def answer_of(payload: bytes) -> bytes:
    """Return what the three stages below make of *payload*: itself, and a digest of the digests of each stage."""
    first = _digest(b"decode", payload)
    second = _digest(b"preprocess", payload[::-1], first)
    return payload + _digest(b"postprocess", payload, second)


def decode(inputs: Tensors, outputs: Tensors, params: Any) -> Shapes:
    """Digest the payload and turn it about."""
    payload = inputs["payload"].reshape(-1)
    _write(outputs["digest"], _digest(b"decode", payload.tobytes()))
    outputs["body"][: payload.size] = payload[::-1]
    return {"body": (payload.size,)}


def preprocess(inputs: Tensors, outputs: Tensors, params: Any) -> Shapes:
    """Digest all that came and turn it about again."""
    body = inputs["body"]
    _write(outputs["digest"], _digest(b"preprocess", body.tobytes(), inputs["digest"].tobytes()))
    outputs["body"][: body.size] = body[::-1]
    return {"body": (body.size,)}


def postprocess(inputs: Tensors, outputs: Tensors, params: Any) -> Shapes:
    """Answer with the body and the digest of all digests."""
    body = inputs["body"]
    outputs["answer"][: body.size] = body
    last = _digest(b"postprocess", body.tobytes(), inputs["digest"].tobytes())
    _write(outputs["answer"][body.size : body.size + DIGEST_BYTES], last)
    return {"answer": (body.size + DIGEST_BYTES,)}


def _digest(salt: bytes, *parts: bytes) -> bytes:
    made = hashlib.blake2b(digest_size=DIGEST_BYTES, key=salt)
    for part in parts:
        made.update(part)
    return made.digest()


def _write(target: NDArray[Any], raw: bytes) -> None:
    target[:] = np.frombuffer(raw, np.uint8)
