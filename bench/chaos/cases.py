"""What is sent, and what must come back: requests whose right answers are known before any fault strikes.

- The built-in lane: the answer is computed from the payload, here, by the plain functions.
- The demo: every answer is compared bit for bit with a direct run of the model, without the server.
- Any other config: nobody knows its right answers, so a pool of inputs is sent once before the faults, and each later answer must
  equal the first one for the same input. A model whose answers depend on its batch mates fails this, and so it should be known.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bench.chaos import functions, lanes
from schemas.messages import MetadataReply
from schemas.templates import TensorForm
from schemas.tensors import NUMPY_NAME, DType, TensorSpec, pack_bytes
from schemas.wire import MAX_INLINE_BYTES
from stages.demo import parts_path, ticks_path
from stages.demo.reference import reference_parts, reference_ticks

TICKS = 512
POOL = 16
# A dimension that the model leaves open, other than rows.
FREE_SIZE = 8
FIRST_POISON = 20

Expected = Mapping[str, bytes] | str


@dataclass(frozen=True, slots=True)
class Case:
    """One request: *tensors* as they lie on the wire, and its right answer: outputs by name, or the name of an error code."""

    model: str
    forms: tuple[TensorForm, ...]
    tensors: tuple[bytes, ...]
    expected: Expected


class Cases(Protocol):
    """An endless supply of requests."""

    def next(self) -> Case:
        """Return the next request."""

    def poison(self) -> Case:
        """Return a request that ``next`` never returns, to be the one that something is done to."""


class DigestCases:
    """Random payloads of 1 byte to MAX_PAYLOAD_BYTES for the built-in lane; small ones are as likely as large ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def next(self) -> Case:
        size = self._random.randint(1, 1 << self._random.randint(1, lanes.MAX_PAYLOAD_BYTES.bit_length() - 1))
        return self._case(self._random.randbytes(size))

    def poison(self) -> Case:
        # Longer than what randint gives for this exponent's neighbours would not help; random payloads do not hit 256 fixed bits.
        return self._case(b"the one that harms".ljust(32, b"!"))

    def _case(self, payload: bytes) -> Case:
        form = _form("payload", DType.UINT8, (len(payload),), len(payload))
        return Case(lanes.BUILT_IN, (form,), (payload,), {"answer": functions.answer_of(payload)})


class PoolCases:
    """Requests drawn from a pool; its first one is kept apart as the poison."""

    def __init__(self, pool: Sequence[Case], seed: int) -> None:
        self._pool = pool
        self._random = random.Random(seed)

    def next(self) -> Case:
        return self._pool[self._random.randrange(1, len(self._pool))]

    def poison(self) -> Case:
        return self._pool[0]


class MixedCases:
    """Requests of several supplies, each as often as its weight says. Poison is the first one's."""

    def __init__(self, parts: Sequence[tuple[Cases, int]], seed: int) -> None:
        self._parts = parts
        self._random = random.Random(seed)

    def next(self) -> Case:
        (cases,) = self._random.choices([part for part, _ in self._parts], [weight for _, weight in self._parts])
        return cases.next()

    def poison(self) -> Case:
        return self._parts[0][0].poison()


class SpikedCases:
    """Every *every*th request is the poison, whose answer must be the error *code*."""

    def __init__(self, cases: Cases, every: int, code: str) -> None:
        self._cases = cases
        self._every = every
        self._poison = replace(cases.poison(), expected=code)
        # The first one comes soon, so that a short run has one.
        self._count = max(0, every - FIRST_POISON)

    def next(self) -> Case:
        self._count += 1
        return self._poison if self._count % self._every == 0 else self._cases.next()

    def poison(self) -> Case:
        return self._poison


@cache
def tick_pool() -> list[Case]:
    """Return market features for the demo's ``ticks``, with what a direct run of each row gives."""
    with np.load(ticks_path()) as file:
        rows: NDArray[np.float32] = np.ascontiguousarray(file["features"][:TICKS], np.float32)
    outputs = reference_ticks(rows)
    form = _form("features", DType.FP32, (1, rows.shape[1]), rows[0].nbytes)
    return [
        Case("ticks", (form,), (row.tobytes(),), {name: values[at].tobytes() for name, values in outputs.items()})
        for at, row in enumerate(rows)
    ]


@cache
def photo_pool() -> list[Case]:
    """Return the part photos for the demo's ``qc``, with verdict, score and boxes of a direct run."""
    paths = sorted(parts_path().glob("*.png"))
    return [
        _photo(
            path.read_bytes(),
            {
                "verdict": pack_bytes([verdict.encode()]),
                "score": np.float32(score).tobytes(),
                "boxes": boxes.tobytes(),
            },
        )
        for path, (verdict, score, boxes) in zip(paths, reference_parts(paths), strict=True)
    ]


def _photo(file: bytes, expected: Expected, model: str = "qc", name: str = "image") -> Case:
    return Case(model, (TensorForm(name, DType.ENCODED, (1,), len(file)),), (file,), expected)


def guessed_pool(model: str, metadata: MetadataReply, seed: int) -> list[Case]:
    """Return requests that lane *model* may take, by its metadata: random numbers, or part photos; nobody knows their answers."""
    numbers = np.random.default_rng(seed)
    specs = metadata.inputs or (TensorSpec("payload", DType.UINT8, (64,)),)
    files = sorted(parts_path().glob("*.png"))[:POOL]
    pool = []
    for at in range(POOL):
        made = [_guess(spec, numbers, files[at % len(files)].read_bytes()) for spec in specs]
        pool.append(Case(model, tuple(form for form, _ in made), tuple(raw for _, raw in made), ""))
    return pool


def _guess(spec: TensorSpec, numbers: np.random.Generator, photo: bytes) -> tuple[TensorForm, bytes]:
    if spec.dtype == DType.ENCODED:
        return TensorForm(spec.name, DType.ENCODED, (1,), len(photo)), photo
    shape = tuple(size if size > 0 else 1 if at == 0 else FREE_SIZE for at, size in enumerate(spec.shape))
    count = int(np.prod(shape, dtype=np.int64))
    if spec.dtype == DType.BYTES:
        raw = pack_bytes([numbers.bytes(8).hex().encode() for _ in range(count)])
    elif np.dtype(NUMPY_NAME[spec.dtype]).kind == "f":
        raw = numbers.standard_normal(count).astype(NUMPY_NAME[spec.dtype]).tobytes()
    else:
        # Also BF16, whose bits are then small positive numbers.
        raw = numbers.integers(0, 2, count).astype(NUMPY_NAME[spec.dtype]).tobytes()
    return _form(spec.name, spec.dtype, shape, len(raw)), raw


def _form(name: str, dtype: DType, shape: tuple[int, ...], nbytes: int) -> TensorForm:
    return TensorForm(name, dtype, shape, nbytes, inline=nbytes <= MAX_INLINE_BYTES)


def pool_to_json(pool: Sequence[Case]) -> list[Any]:
    """Return a pool as JSON, for another process."""
    return [
        {
            "model": case.model,
            "forms": [list(form) for form in case.forms],
            "tensors": [raw.hex() for raw in case.tensors],
            "expected": case.expected
            if isinstance(case.expected, str)
            else {name: raw.hex() for name, raw in case.expected.items()},
        }
        for case in pool
    ]


def pool_from_json(raw: Sequence[Any]) -> list[Case]:
    """Return a pool from its JSON."""
    return [
        Case(
            one["model"],
            tuple(TensorForm(name, DType(dtype), tuple(shape), *rest) for name, dtype, shape, *rest in one["forms"]),
            tuple(map(bytes.fromhex, one["tensors"])),
            one["expected"]
            if isinstance(one["expected"], str)
            else {name: bytes.fromhex(text) for name, text in one["expected"].items()},
        )
        for one in raw
    ]
