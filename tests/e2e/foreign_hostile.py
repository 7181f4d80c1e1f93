"""Replies that no server sends: made from a sound one, so that each still finds its call unless that was the attack."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from schemas.messages import Body, Hello, write_message
from schemas.templates import ReplyTemplate, TensorForm
from schemas.tensors import DType, pack_bytes
from schemas.wire import Route

# Makes a reply to the request with this Route.
Attack = Callable[[Route], bytes]

_TEMPLATE = ReplyTemplate(
    "any",
    "1",
    [TensorForm("score", DType.FP64, (2,), 16, inline=True), TensorForm("verdict", DType.BYTES, (2,), 12, inline=True)],
    stages=2,
)


def sound_reply(route: Route) -> bytes:
    """Return a reply with one tensor of numbers and one of BYTES."""
    inline = [np.arange(2, dtype="<f8").tobytes(), pack_bytes([b"OK", b"NG"])]
    return _TEMPLATE.header((route.request_id, 0, 0), bytes(24), 0, 0, inline)


def _overwritten(at: int, value: bytes) -> Attack:
    return lambda route: sound_reply(route)[:at] + value + sound_reply(route)[at + len(value) :]


def _shortened(size: int) -> Attack:
    return lambda route: sound_reply(route)[:size]


def _another(body: Body) -> Attack:
    return lambda route: write_message(body, (route.request_id, 0, 0))


_PROBED = sound_reply(Route._make([0] * 12))
# Long enough that the Route, and so the call, is found.
CUT_OFF = [_shortened(size) for size in range(len(_PROBED) - 64, len(_PROBED) - 1, 4)]


def hostile_replies() -> Iterator[Attack]:
    """Yield about 700 attacks, the last of them CUT_OFF."""
    words = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\1\0\0\0", b"\xff\xff\xff\x7f", b"\0\0\0\x80")
    for at in range(0, len(_PROBED), 4):
        yield from (_overwritten(at, word) for word in words)
    yield from (_shortened(size) for size in (0, 3, 11, 12, 60))
    yield _another(Hello("who", ("SLT1",), False))
    yield from CUT_OFF
