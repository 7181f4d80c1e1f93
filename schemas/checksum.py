"""The checksum of a request's payload: what corruption on the way is seen by, which no image decoder notices.

It is the xxh64 (seed 0) of the bytes of the inline tensors, in the order of the inputs, followed by the payload frames in their
order. 0 on the wire means none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from .status import Code, Place, RequestError
from .wire_tensors import WireTensor

Buffer = Any  # bytes, memoryview or a C-contiguous array


def payload_checksum(parts: Iterable[Buffer]) -> int:
    """Return the xxh64 of *parts*, one behind the other.

    Raises:
        RequestError: NOT_SUPPORTED when the library is not installed.
    """
    digest = _library().xxh64()
    for part in parts:
        digest.update(part)
    return int(digest.intdigest())


def check_payload(checksum: int, tensors: Sequence[WireTensor], header: bytes, frames: Sequence[Buffer]) -> None:
    """Compare a request's *checksum* with its bytes as they arrived.

    Raises:
        RequestError: BAD_CHECKSUM, or NOT_SUPPORTED when the library is not installed.
    """
    view = memoryview(header)
    inline = [view[t.inline_at : t.inline_at + t.nbytes] for t in tensors if t.place == Place.INLINE]
    got = payload_checksum([*inline, *frames])
    if got != checksum:
        raise RequestError(Code.BAD_CHECKSUM, field="checksum", expected=f"{checksum:#018x} as sent", got=f"{got:#018x}")


@cache
def _library() -> ModuleType:
    """Import xxhash, which only requests with a checksum need."""
    try:
        import xxhash
    except ImportError as error:
        cure = "no checksum, or on this side pip install 'slotline[checksum]'"
        raise RequestError(Code.NOT_SUPPORTED, field="checksum", expected=cure, got=error) from error
    return xxhash
