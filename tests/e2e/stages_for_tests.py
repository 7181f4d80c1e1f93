"""Stages of the servers that tests start, found as ``stages_for_tests:NAME``. Run in the server's processes."""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[Any]]

DIGEST_BYTES = 16
# First byte of a request that makes a stage misbehave; payloads of well-behaved requests begin with 0.
HANG, ABORT, SLOW, HOARD = 1, 2, 3, 4
HOARDED_BYTES = 100 << 20
_hoard: list[NDArray[Any]] = []


def digest(salt: bytes, *parts: bytes) -> bytes:
    """Return 16 bytes that depend on each byte of *parts*."""
    made = hashlib.blake2b(digest_size=DIGEST_BYTES, key=salt)
    for part in parts:
        made.update(part)
    return made.digest()


def expected_answer(payload: bytes) -> bytes:
    """Return what the three stages below make of *payload*: its bytes turned about, and a digest by each stage."""
    first = digest(b"decode", payload)
    body = payload[::-1]
    second = digest(b"preprocess", body, first)
    body = body[::-1]
    return body + digest(b"postprocess", body, second)


def decode(inputs: Tensors, outputs: Tensors, params: Any) -> dict[str, tuple[int, ...]]:
    """Digest the payload and turn it about."""
    payload = inputs["payload"].reshape(-1)
    outputs["digest"][:] = np.frombuffer(digest(b"decode", payload.tobytes()), np.uint8)
    outputs["body"][: payload.size] = payload[::-1]
    return {"body": (payload.size,)}


def preprocess(inputs: Tensors, outputs: Tensors, params: Any) -> dict[str, tuple[int, ...]]:
    """Digest all that came and turn it about again."""
    body = inputs["body"]
    outputs["digest"][:] = np.frombuffer(digest(b"preprocess", body.tobytes(), inputs["digest"].tobytes()), np.uint8)
    outputs["body"][: body.size] = body[::-1]
    return {"body": (body.size,)}


def postprocess(inputs: Tensors, outputs: Tensors, params: Any) -> dict[str, tuple[int, ...]]:
    """Answer with the body and the digest of all digests.

    With ``linger_ms`` in its table it dawdles up to so long between reading and writing, and again after the write: who writes
    into a slot that is no longer his is then seen.
    """
    body = inputs["body"].copy()
    last = digest(b"postprocess", body.tobytes(), inputs["digest"].tobytes())
    time.sleep(random.random() * params.get("linger_ms", 0) / 1000)
    outputs["answer"][: body.size] = body
    outputs["answer"][body.size : body.size + DIGEST_BYTES] = np.frombuffer(last, np.uint8)
    time.sleep(random.random() * params.get("linger_ms", 0) / 1000)
    return {"answer": (body.size + DIGEST_BYTES,)}


def misbehave(inputs: Tensors, outputs: Tensors, params: Any) -> dict[str, tuple[int, ...]]:
    """Echo the payload, unless its first byte says to hang, to die, to take 20 ms or to keep 100 MiB."""
    payload = inputs["payload"].reshape(-1)
    if payload[0] == HANG:
        while True:
            time.sleep(1)
    if payload[0] == ABORT:
        os.abort()
    if payload[0] == SLOW:
        time.sleep(0.02)
    if payload[0] == HOARD:
        _hoard.append(np.ones(HOARDED_BYTES, np.uint8))
    outputs["echo"][: payload.size] = payload
    return {"echo": (payload.size,)}


def wait_for_leave(inputs: Tensors, outputs: Tensors, params: Any) -> dict[str, tuple[int, ...]]:
    """Copy the payload to the next stage's region, say so by a file, and hold the slot until another file appears."""
    payload = inputs["payload"].reshape(-1)
    outputs["body"][: payload.size] = payload
    place = Path(params["place"])
    (place / "written").touch()
    while not (place / "leave").exists():
        time.sleep(0.005)
    return {"body": (payload.size,)}


def timed(inputs: Tensors, outputs: Tensors, params: Any) -> dict[str, tuple[int, ...]]:
    """Echo the payload after ``run_us`` of its table: a stage whose speed does not depend on the machine."""
    payload = inputs["payload"].reshape(-1)
    time.sleep(params["run_us"] / 1e6)
    outputs["echo"][: payload.size] = payload
    return {"echo": (payload.size,)}


def copy(inputs: Tensors, outputs: Tensors, params: Any) -> dict[str, tuple[int, ...]]:
    """Answer with what the stage before left in the slot."""
    body = inputs["body"]
    outputs["answer"][: body.size] = body
    return {"answer": (body.size,)}


def setup(config: Mapping[str, Any]) -> None:
    """If its table says so, tell by a file that the module is being set up and never return; or end while a file is there."""
    if "hang_in" in config:
        Path(str(config["hang_in"]), "setting-up").touch()
        while True:
            time.sleep(1)
    if "die_in" in config and Path(str(config["die_in"]), "broken").exists():
        os._exit(3)
