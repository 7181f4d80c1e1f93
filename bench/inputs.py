"""Requests for any lane: from arrays and files that are given, or random ones of the shapes that a server says it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.requests import Requests
from clients.files import CONTENT_TYPES
from clients.forms import make_form
from schemas.arrays import Encoded, Source, describe
from schemas.messages import MetadataReply
from schemas.status import ConfigError, RequestError
from schemas.templates import RequestTemplate, TensorForm
from schemas.tensors import NUMPY_NAME, DType, TensorSpec

# Different ones, so that no cache sees the same row all the time.
RANDOM_REQUESTS = 64
# All together; a few large frames are as good as many.
RANDOM_BYTES = 64 << 20
Shapes = Mapping[str, tuple[int, ...]]


def requests_of(model: str, rows: Sequence[Mapping[str, Any]]) -> Requests:
    """Return one request for each of *rows*, which map input names to values as the Python client takes them.

    Raises:
        RequestError: a value that no server takes.
        ConfigError: the rows have different layouts.
    """
    headers, frames = [], []
    for row in rows:
        described = [(name, *describe(value, name)) for name, value in row.items()]
        form = make_form(model, tuple((name, about) for name, about, _ in described), {})
        contents = [_bytes(source) for _, _, source in described]
        headers.append(form.template.header(0, 0, [contents[index] for index in form.inline]))
        frames.append([contents[index] for index in form.frames])
    if len({len(payloads) for payloads in frames}) != 1:
        raise ConfigError("the inputs are partly above and partly below 4 KiB, so some travel inline: give inputs of one kind")
    return Requests.of(headers, frames)


def packed_requests(model: str, rows: Sequence[Mapping[str, Any]], count: int) -> Requests:
    """Return messages of *count* requests each, of rows with one small array each, taken in turn until all are used."""
    (name,) = rows[0]
    dtype, shape, nbytes, _ = describe(rows[0][name], name)[0]
    template = RequestTemplate(model, [TensorForm(name, dtype, shape, nbytes, inline=True)])
    # As many times over that every row is sent, and the last message is full.
    contents = [np.ascontiguousarray(row[name]).tobytes() for row in rows] * count
    return Requests.packed(template, contents, count)


def file_rows(about: MetadataReply, files: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the inputs that *files* hold: .npy arrays, .npz archives with one array for each input, or encoded files.

    Raises:
        ConfigError: a file that cannot be read, or whose names do not fit.
    """
    return [_file_row(about, file) for file in files]


def random_rows(about: MetadataReply, shapes: Shapes) -> list[dict[str, Any]]:
    """Return random inputs for a lane: normal floats, and 0 or 1 for integers, which are often indices.

    Args:
        shapes: of the inputs whose sizes the lane leaves open, beside the first, which is 1.

    Raises:
        ConfigError: the lane takes what cannot be made up.
    """
    unknown = shapes.keys() - {spec.name for spec in about.inputs}
    if not about.inputs or unknown:
        names = ", ".join(spec.name for spec in about.inputs) or "tensors of any names"
        raise ConfigError(f"{about.name} takes {names}: give its inputs with --input FILE")
    rng = np.random.default_rng(0)
    first = {spec.name: _random(spec, shapes, rng) for spec in about.inputs}
    count = max(1, min(RANDOM_REQUESTS, RANDOM_BYTES // sum(array.nbytes for array in first.values())))
    return [first, *({spec.name: _random(spec, shapes, rng) for spec in about.inputs} for _ in range(count - 1))]


def _bytes(source: Source) -> bytes:
    return source if isinstance(source, bytes) else source.tobytes()


def _random(spec: TensorSpec, shapes: Shapes, rng: np.random.Generator) -> Any:
    open_rows = spec.shape[:1] == (-1,)
    shape = shapes.get(spec.name) or ((1, *spec.shape[1:]) if open_rows else spec.shape)
    if -1 in shape:
        example = ",".join(str(max(dim, 1)) for dim in shape)
        raise ConfigError(f"input {spec.name} is {list(spec.shape)}: give its shape, as in --shape {spec.name}={example}")
    if spec.dtype in (DType.ENCODED, DType.BYTES, DType.BF16):
        raise ConfigError(f"input {spec.name} is {spec.dtype.name}, which cannot be made up: give it with --input FILE")
    dtype = np.dtype(NUMPY_NAME[spec.dtype])
    return (rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)).astype(dtype)


def _file_row(about: MetadataReply, file: Path) -> dict[str, Any]:
    names = [spec.name for spec in about.inputs]
    try:
        if file.suffix == ".npz":
            with np.load(file) as arrays:
                return {name: arrays[name] for name in names or arrays.files}
        if len(names) != 1:
            raise ConfigError(
                f"{file}: {about.name} takes {', '.join(names) or 'any names'}; give an .npz file with their arrays"
            )
        if file.suffix == ".npy":
            return {names[0]: np.load(file, allow_pickle=False)}
        return {names[0]: Encoded(file.read_bytes(), CONTENT_TYPES.get(file.suffix.lower(), ""))}
    except KeyError as error:
        raise ConfigError(f"{file}: no array {error} in it; {about.name} takes {', '.join(names)}") from None
    except (ValueError, EOFError) as error:
        raise ConfigError(f"{file}: not an array file: {error}") from None


def checked_requests(model: str, rows: Sequence[Mapping[str, Any]]) -> Requests:
    """Return ``requests_of`` for rows that a person gave: what is wrong with them is a mistake of theirs."""
    try:
        return requests_of(model, rows)
    except RequestError as error:
        raise ConfigError(f"the inputs: {error}") from None
