"""Valid messages as clients send them, and endless damaged ones made of them. A message is a list of frames, as ZeroMQ has it.

Each message made here has ids of its own in all its headers, before it is damaged: so a reply tells whose it is.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from schemas.encode import encode
from schemas.layout import route_if_readable
from schemas.messages import Body, Cancel, Control, Health, Hello, Metadata, write_message
from schemas.status import ControlOp, Flag, HealthScope, KeyPolicy, Kind
from schemas.tables import BodyTag
from schemas.templates import NO_ROUTE, RequestOptions, RequestTemplate, TensorForm
from schemas.tensors import DType, pack_bytes
from schemas.verify import find_route
from schemas.wire import MAX_FRAMES, MAX_PACKED

Frames = list[bytes]
Damage = Callable[["Mutator", Frames], Frames]

BUDGET_US = 30_000_000
PACKED = int(Flag.IDEMPOTENT | Flag.PACKED)
PIXELS = bytes(range(256)) * 12
WORDS = (0, 1, 2, 3, 4, 7, 8, 0x40, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFC, 0x7FFFFFFF, 0x80000000,
         0xFFFFFFFC, 0xFFFFFFFF, 1 << 32, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip
STEPS = (-64, -8, -4, -2, -1, 1, 2, 4, 8, 64)
_UNSIGNED = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One damaged message: its frames and how it was made."""

    frames: Frames
    kind: str


def tick(name: str, model: str, columns: int) -> RequestTemplate:
    """Return the template of a small FP32 row inline."""
    return RequestTemplate(model, [TensorForm(name, DType.FP32, (1, columns), 4 * columns, inline=True)])


def valid_messages() -> dict[str, Frames]:
    """Return one valid message of every sort that a client sends, by name; all ids in it are 0."""
    ticks = tick("features", "ticks", 67).header(0, BUDGET_US, [bytes(268)])
    echo = tick("x", "echo", 8).header(0, BUDGET_US, [bytes(range(32))])
    packed = tick("x", "echo", 4).header(0, BUDGET_US, [bytes(16)], flags=PACKED)
    words = pack_bytes([b"OK", b"", b"a longer one"])
    texts = RequestTemplate("echo", [TensorForm("words", DType.BYTES, (3,), len(words), inline=True)])
    many = RequestTemplate("echo", [TensorForm(f"t{i}", DType.UINT8, (2, 64), 128) for i in range(8)])
    picture = RequestTemplate("qc", [TensorForm("image", DType.ENCODED, (1,), len(PIXELS), content_type="image/png")])
    raw = RequestTemplate("qc", [TensorForm("image", DType.UINT8, (48, 64), len(PIXELS))])
    frames: dict[str, Frames] = {
        "ticks": [ticks],
        "echo": [echo],
        "delimiter": [b"", echo],
        "texts": [texts.header(0, BUDGET_US, [words])],
        "large": [*_full_request()],
        "many": [many.header(0, 0), *[bytes([i]) * 128 for i in range(8)]],
        "picture": [picture.header(0, BUDGET_US), PIXELS],
        "raw": [raw.header(0, BUDGET_US), PIXELS],
        "packed": [packed] * 8,
        "packed_mixed": [_with_flags(ticks, PACKED), packed, _with_flags(texts.header(0, BUDGET_US, [words]), PACKED)],
        "packed_full": [packed] * MAX_PACKED,
        "credit": [encode(NO_ROUTE._replace(kind=Kind.CREDIT), BodyTag.NONE, {})],
    }
    return frames | {name: [write_message(body)] for name, body in QUESTIONS.items()}


QUESTIONS: dict[str, Body] = {
    "hello": Hello("mutants/1.0", ("SLT1",)),
    "cancel": Cancel("no longer needed"),
    "live": Health(HealthScope.LIVE),
    "model_ready": Health(HealthScope.MODEL_READY, "ticks", "1"),
    "server": Metadata(),
    "model": Metadata("qc", "1"),
    "stats": Control(ControlOp.STATS, "ticks", "1", {"top": 4, "share": 0.5, "on": True, "why": "test"}),
}


def _full_request() -> Frames:
    """Return a request with every option, two tensors in frames and two inline."""
    options = RequestOptions(
        version="1", outputs=("image", "gain"), params={"threshold": 0.5, "top": 4, "line": "k\u00e4fer"}, priority=1,
        client_request_id="part 0815", key_policy=KeyPolicy.ONE_BY_ONE, finite=True,
    )  # fmt: skip
    words = pack_bytes([b"abc", b"def"])
    tensors = [
        TensorForm("image", DType.UINT8, (48, 64), len(PIXELS)),
        TensorForm("mask", DType.BF16, (2, 4), 16),
        TensorForm("gain", DType.FP64, (), 8, inline=True),
        TensorForm("label", DType.BYTES, (2,), len(words), inline=True),
    ]
    header = RequestTemplate("echo", tensors, options).header(0, BUDGET_US, [bytes(8), words], key=9)
    return [header, PIXELS, bytes(16)]


def _with_flags(header: bytes, flags: int) -> bytes:
    at = _route_at(header)
    return header[: at + 40] + struct.pack("<H", flags) + header[at + 42 :]


def _route_at(header: bytes) -> int:
    at = find_route(header)
    assert at is not None
    return at


class Mutator:
    """Makes damaged messages; the same *seed* makes the same ones.

    Args:
        names: of the valid messages that it starts from, () = all.
    """

    def __init__(self, seed: int, names: tuple[str, ...] = ()) -> None:
        self.random = random.Random(seed)
        self._next_id = 1
        self._valid = [frames for name, frames in valid_messages().items() if not names or name in names]

    def mutants(self, count: int) -> Iterator[Mutant]:
        """Yield *count* damaged messages."""
        kinds = list(DAMAGES)
        for _ in range(count):
            kind = self.random.choice(kinds)
            yield Mutant(DAMAGES[kind](self, self.message()), kind)

    def message(self) -> Frames:
        """Return a valid message with new ids."""
        frames = list(self.random.choice(self._valid))
        for index in _header_places(frames):
            frames[index] = self._with_new_id(frames[index])
        return frames

    def _with_new_id(self, header: bytes) -> bytes:
        at = _route_at(header)
        self._next_id += 1
        return header[:at] + struct.pack("<Q", self._next_id) + header[at + 8 :]

    def number(self, now: int, size: int) -> int:
        """Return a number to put in the place of *now*: an extreme one, a neighbour, or any."""
        pick = self.random.randrange(3)
        if pick == 0:
            new = self.random.choice(WORDS)
        elif pick == 1:
            new = now + self.random.choice(STEPS)
        else:
            new = self.random.getrandbits(8 * size)
        return new % (1 << 8 * size)


def _header_places(frames: Frames) -> list[int]:
    """Return which frames of a valid message are headers."""
    first = 1 if frames[0] == b"" else 0
    route = route_if_readable(frames[first])
    assert route is not None
    return list(range(first, len(frames))) if route.flags & Flag.PACKED else [first]


# --- the damages -----------------------------------------------------------------------------------------------------------


def _replace(frames: Frames, index: int, frame: bytes) -> Frames:
    return [*frames[:index], frame, *frames[index + 1 :]]


def _any_header(mutator: Mutator, frames: Frames) -> int:
    return mutator.random.choice(_header_places(frames))


def _cut(mutator: Mutator, frames: Frames) -> Frames:
    """End any frame early."""
    index = mutator.random.randrange(len(frames))
    return _replace(frames, index, frames[index][: mutator.random.randint(0, max(len(frames[index]) - 1, 0))])


def _lengthen(mutator: Mutator, frames: Frames) -> Frames:
    """Add bytes to any frame."""
    index = mutator.random.randrange(len(frames))
    return _replace(frames, index, frames[index] + mutator.random.randbytes(mutator.random.randint(1, 64)))


def _word(mutator: Mutator, frames: Frames) -> Frames:
    """Overwrite one to three aligned words of a header."""
    index = _any_header(mutator, frames)
    header = bytearray(frames[index])
    for _ in range(mutator.random.choice((1, 1, 1, 2, 3))):
        size = mutator.random.choice((1, 2, 4, 4, 8))
        at = mutator.random.randrange(len(header) // size) * size
        (now,) = struct.unpack_from(_UNSIGNED[size], header, at)
        struct.pack_into(_UNSIGNED[size], header, at, mutator.number(now, size))
    return _replace(frames, index, bytes(header))


def _bits(mutator: Mutator, frames: Frames) -> Frames:
    """Turn over up to four bits of a header."""
    index = _any_header(mutator, frames)
    header = bytearray(frames[index])
    for _ in range(mutator.random.randint(1, 4)):
        header[mutator.random.randrange(len(header))] ^= 1 << mutator.random.randrange(8)
    return _replace(frames, index, bytes(header))


def _route(mutator: Mutator, frames: Frames) -> Frames:
    """Change a field of the Route that is not the id."""
    index = _any_header(mutator, frames)
    header = frames[index]
    at = _route_at(header)
    places = ((8, 8), (16, 8), (24, 8), (32, 4), (36, 4), (40, 2), (42, 2), (44, 2), (46, 1), (47, 1), (48, 8))
    offset, size = mutator.random.choice(places)
    (now,) = struct.unpack_from(_UNSIGNED[size], header, at + offset)
    new = struct.pack(_UNSIGNED[size], mutator.number(now, size))
    return _replace(frames, index, header[: at + offset] + new + header[at + offset + size :])


def _drop(mutator: Mutator, frames: Frames) -> Frames:
    """Leave out a frame; a message of one frame becomes an empty one."""
    index = mutator.random.randrange(len(frames))
    return frames[:index] + frames[index + 1 :] or [b""]


def _double(mutator: Mutator, frames: Frames) -> Frames:
    """Send a frame more than once, sometimes more often than any message may have frames."""
    index = mutator.random.randrange(len(frames))
    times = mutator.random.choice((1, 1, 1, 2, MAX_FRAMES, MAX_FRAMES + 1))
    return frames[:index] + [frames[index]] * times + frames[index:]


def _swap(mutator: Mutator, frames: Frames) -> Frames:
    """Change the order of two frames."""
    frames = [*frames, b""] if len(frames) == 1 else list(frames)
    first, second = mutator.random.sample(range(len(frames)), 2)
    frames[first], frames[second] = frames[second], frames[first]
    return frames


def _insert(mutator: Mutator, frames: Frames) -> Frames:
    """Put an empty or a random frame in."""
    index = mutator.random.randint(0, len(frames))
    return [*frames[:index], mutator.random.randbytes(mutator.random.choice((0, 1, 8, 100))), *frames[index:]]


def _splice(mutator: Mutator, frames: Frames) -> Frames:
    """Begin with one header and end with another one's bytes."""
    index, other = _any_header(mutator, frames), mutator.message()
    header, tail = frames[index], other[_any_header(mutator, other)]
    at = mutator.random.randrange(len(header))
    same_place = mutator.random.random() < 0.5
    return _replace(frames, index, header[:at] + tail[at if same_place else mutator.random.randrange(len(tail)) :])


def _borrow(mutator: Mutator, frames: Frames) -> Frames:
    """Send one message's beginning with another one's end."""
    other = mutator.message()
    return frames[: mutator.random.randint(1, len(frames))] + other[mutator.random.randint(0, len(other)) :]


DAMAGES: dict[str, Damage] = {
    "cut": _cut, "lengthen": _lengthen, "word": _word, "bits": _bits, "route": _route, "drop": _drop, "double": _double,
    "swap": _swap, "insert": _insert, "splice": _splice, "borrow": _borrow,
}  # fmt: skip
