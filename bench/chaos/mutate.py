"""Damaged messages: a valid request with bytes, words, lengths or frames changed. Pure; the same numbers, the same damage."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

# Words that offsets, counts and sizes break on.
NASTY = (0, 1, 4, 0x7F, 0xFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0xFFFF_FFFC)

Damage = Callable[[random.Random, list[bytes]], list[bytes]]


def mutate(numbers: random.Random, frames: Sequence[bytes]) -> list[bytes]:
    """Return *frames* with one to three damages; they may, rarely, still be a valid request."""
    found = list(frames)
    for _ in range(numbers.randint(1, 3)):
        found = numbers.choice(_DAMAGES)(numbers, found)
    return found


def _flip_bit(numbers: random.Random, frames: list[bytes]) -> list[bytes]:
    header = bytearray(frames[0])
    if header:
        header[numbers.randrange(len(header))] ^= 1 << numbers.randrange(8)
    return [bytes(header), *frames[1:]]


def _set_word(numbers: random.Random, frames: list[bytes]) -> list[bytes]:
    header = bytearray(frames[0])
    if len(header) >= 4:
        at = numbers.randrange(len(header) // 4) * 4
        header[at : at + 4] = numbers.choice(NASTY).to_bytes(4, "little")
    return [bytes(header), *frames[1:]]


def _add_to_word(numbers: random.Random, frames: list[bytes]) -> list[bytes]:
    header = bytearray(frames[0])
    if len(header) >= 4:
        at = numbers.randrange(len(header) // 4) * 4
        word = int.from_bytes(header[at : at + 4], "little") + numbers.choice((-8, -4, -1, 1, 4, 8))
        header[at : at + 4] = (word & 0xFFFF_FFFF).to_bytes(4, "little")
    return [bytes(header), *frames[1:]]


def _cut(numbers: random.Random, frames: list[bytes]) -> list[bytes]:
    at = numbers.randrange(len(frames))
    return [frame[: numbers.randrange(len(frame) + 1)] if i == at else frame for i, frame in enumerate(frames)]


def _lengthen(numbers: random.Random, frames: list[bytes]) -> list[bytes]:
    at = numbers.randrange(len(frames))
    return [frame + numbers.randbytes(numbers.randint(1, 64)) if i == at else frame for i, frame in enumerate(frames)]


def _drop_or_add_frame(numbers: random.Random, frames: list[bytes]) -> list[bytes]:
    if len(frames) > 1 and numbers.random() < 0.5:
        at = numbers.randrange(len(frames))
        return frames[:at] + frames[at + 1 :]
    return [*frames, numbers.randbytes(numbers.randint(0, 64))]


def _noise(numbers: random.Random, frames: list[bytes]) -> list[bytes]:
    return [numbers.randbytes(numbers.randint(0, 300)), *frames[1:]]


_DAMAGES: tuple[Damage, ...] = (
    _flip_bit,
    _flip_bit,
    _set_word,
    _set_word,
    _add_to_word,
    _cut,
    _lengthen,
    _drop_or_add_frame,
    _noise,
)
