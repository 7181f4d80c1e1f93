"""Files as requests: what ``infer`` sends for a picture or an array, and what it tells of the answer."""

from __future__ import annotations

import io
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from schemas.arrays import Encoded
from schemas.messages import MetadataReply
from schemas.status import printable
from schemas.tensors import DType

from .client import Client
from .errors import CallError, ServerUnreachable, SlotlineError

CONTENT_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}
# Files on their way at once; enough to keep every stage busy.
MAX_AT_ONCE = 64
# No server takes more in one message.
MAX_FILE_BYTES = 1 << 30


class UnreadableFileError(Exception):
    """A file cannot be made into a request."""


def infer_files(client: Client, model: str, files: Sequence[Path]) -> list[dict[str, Any]]:
    """Send *files* to *model* and return one entry for each, in order: {file, ok, verdict or outputs, error}."""
    try:
        about = client.metadata(model)
    except CallError as error:
        return [_failed(file, error.code.name, error.message) for file in files]
    entries: list[dict[str, Any]] = []
    for at in range(0, len(files), MAX_AT_ONCE):
        entries += _some_files(client, about, files[at : at + MAX_AT_ONCE])
        if (entries[-1]["error"] or {}).get("code") == ServerUnreachable.__name__:
            gone = entries[-1]["error"]
            return entries + [_failed(file, gone["code"], gone["message"]) for file in files[at + MAX_AT_ONCE :]]
    return entries


def _some_files(client: Client, about: MetadataReply, files: Sequence[Path]) -> list[dict[str, Any]]:
    """Send a few files together; each ends by itself."""
    calls: list[Any] = []
    for file in files:
        if calls and isinstance(calls[-1], ServerUnreachable):
            calls.append(calls[-1])  # nobody there: the rest need not wait for that too
            continue
        try:
            calls.append(client.submit(about.name, _inputs(file, about)))
        except (UnreadableFileError, SlotlineError) as error:
            calls.append(error)
    return [_entry(file, call) for file, call in zip(files, calls, strict=True)]


def _entry(file: Path, call: Any) -> dict[str, Any]:
    try:
        if isinstance(call, Exception):
            raise call
        return {"file": str(file), "ok": True, **_answer(call.result()), "error": None}
    except CallError as error:
        return _failed(file, error.code.name, error.message)
    except (SlotlineError, UnreadableFileError) as error:
        return _failed(file, type(error).__name__, str(error))


def _failed(file: Path, code: str, message: str) -> dict[str, Any]:
    return {"file": str(file), "ok": False, "error": {"code": code, "message": message}}


def _inputs(file: Path, about: MetadataReply) -> dict[str, Any]:
    """Return the request's one input: a picture as it lies in the file, or an array."""
    if not about.inputs:
        raise UnreadableFileError(f"{about.name} takes tensors of any names, and a file has none: use the client library")
    if len(about.inputs) != 1:
        raise UnreadableFileError(
            f"{about.name} takes {len(about.inputs)} named inputs; one file is one input: use the client library"
        )
    spec = about.inputs[0]
    content = _read(file)
    if spec.dtype == DType.ENCODED and file.suffix.lower() != ".npy":
        return {spec.name: Encoded(content, CONTENT_TYPES.get(file.suffix.lower(), ""))}
    if file.suffix.lower() != ".npy":
        wanted = f"{spec.dtype.name} {list(spec.shape)}"
        raise UnreadableFileError(f"{about.name} takes {wanted}: give a .npy file with such an array")
    try:
        return {spec.name: np.load(io.BytesIO(content), allow_pickle=False)}
    # A header may ask for any memory.
    except (ValueError, EOFError, MemoryError, OverflowError, SyntaxError) as error:
        raise UnreadableFileError(f"not a .npy array: {printable(error)}") from None


def _read(file: Path) -> bytes:
    """Return the content of a regular file; a pipe or a device might never end."""
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFileError("not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise UnreadableFileError(f"{status.st_size} bytes; expected at most {MAX_FILE_BYTES}")
        return file.read_bytes()
    except OSError as error:
        raise UnreadableFileError((error.strerror or "cannot be read").lower()) from None


def _answer(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a verdict where the model gives one, and every output as plain lists."""
    plain = {name: _plain(array) for name, array in outputs.items()}
    verdict = plain.get("verdict")
    return {"verdict": verdict[0], "outputs": plain} if verdict and isinstance(verdict[0], str) else {"outputs": plain}


def _plain(array: Any) -> list[Any]:
    if array.dtype == object:
        return [element.decode(errors="replace") for element in array.reshape(-1)]
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        # JSON has no NaN and no infinity: they are told as text.
        array = np.where(np.isfinite(array), array.astype(object), array.astype(str).astype(object))
    plain: list[Any] = array.tolist()
    return plain
