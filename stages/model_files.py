"""The files of an ONNX model: its own and those that its weights lie in (external data), and whether they are still the same.

Only so much of onnx.proto is read as leads to file names. Sizes and times of files stand for their content where that is sure, so
that gigabytes of weights are read for their digest once, when the plan is made, and not again by each worker.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from schemas.config import LaneConfig
from schemas.plan import LanePlan
from schemas.status import ConfigError

# A file that was written just before it was looked at may be written again within one tick of its time stamp.
SETTLED_NS = 2_000_000_000
# message -> field number -> message: the ways to a TensorProto, and in it to where its bytes are.
_WAYS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
_KEY, _VALUE = 1, 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What one model's files were when the plan was made: the digest of all their bytes, and *marks* that stand for it, or ""."""

    digest: str
    marks: str


def look_at(path: Path) -> ModelFiles:
    """Return digest and marks of the model at *path*, which onnxruntime has loaded: it is sound.

    Raises:
        ConfigError: a file cannot be read.
    """
    files = [path, *external_files(path)]
    try:
        marks = _marks(files)
        return ModelFiles(_digest(files), marks)
    except OSError as error:
        raise ConfigError(f"{error.filename}: a file of the model {path}: {(error.strerror or str(error)).lower()}") from None


def check_model(lane: LaneConfig, plan: LanePlan) -> None:
    """Refuse model files that are not those that the server was started with: every replica and restart must run the same.

    Raises:
        ConfigError: one was changed since, or cannot be read.
    """
    if lane.model is None:
        return
    try:
        if plan.model_marks and _marks([lane.model, *external_files(lane.model)]) == plan.model_marks:
            return
    except OSError:
        # Gone, or not ours any more: reading tells which.
        pass
    if look_at(lane.model).digest != plan.model_digest:
        raise ConfigError(f"lane.{lane.name}.model: {lane.model} was changed since the server started: restart the server")


def external_files(path: Path) -> list[Path]:
    """Return the files beside *path* in which tensors of the model lie, each once."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        names = dict.fromkeys(_locations(content, "model", 0, len(content)))
    return [path.parent / os.fsdecode(name) for name in names]


def _locations(content: mmap.mmap, message: str, at: int, end: int) -> Iterator[bytes]:
    """Yield the ``location`` of each tensor below the *message* that lies between *at* and *end*."""
    if message == "entry":
        entry = {number: content[start:stop] for number, start, stop in _fields(content, at, end)}
        if entry.get(_KEY) == b"location":
            yield entry.get(_VALUE, b"")
        return
    for number, start, stop in _fields(content, at, end):
        child = _WAYS[message].get(number)
        if child is not None:
            yield from _locations(content, child, start, stop)


def _fields(content: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of each field of a message that has a length; the others hold no names."""
    while at < end:
        tag, at = _varint(content, at)
        kind = tag & 7
        if kind == _BYTES:
            size, at = _varint(content, at)
            yield tag >> 3, at, min(at + size, end)
            at += size
        elif kind == _VARINT:
            _, at = _varint(content, at)
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            return


def _varint(content: mmap.mmap, at: int) -> tuple[int, int]:
    """Return a number in base 128, low group first, and where it ends."""
    number = shift = 0
    while at < len(content):
        byte = content[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return number, at


def _marks(files: list[Path]) -> str:
    """Return what tells that files are unchanged without reading them; "" while one is too young for that."""
    stats = [os.stat(file) for file in files]
    if any(stat.st_ctime_ns > time.time_ns() - SETTLED_NS for stat in stats):
        return ""
    return json.dumps([[s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for s in stats])


def _digest(files: list[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()
