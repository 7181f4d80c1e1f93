"""Flags set on headers that are made already. Pure."""

from __future__ import annotations

from schemas.encode import encode
from schemas.status import Flag, Kind
from schemas.tables import BodyTag
from schemas.verify import find_route
from schemas.wire import Ids, Route

_FLAGS_AT = 40  # of Route.flags in the Route


def mark(header: bytes, flags: int) -> bytes:
    """Return *header*, one of ours, with *flags* set too."""
    at = find_route(header)
    assert at is not None
    patched = bytearray(header)
    patched[at + _FLAGS_AT] |= flags
    return bytes(patched)


def release_header(ids: Ids) -> bytes:
    """Return the message that the frames of a request, answered before, are free now."""
    request_id, born_us, key = ids
    route = Route(request_id, 0, born_us, key, 0, 0, Flag.FINAL | Flag.RELEASED, 0, 0, Kind.RELEASE, 0, 0)
    return encode(route, BodyTag.NONE, {})
