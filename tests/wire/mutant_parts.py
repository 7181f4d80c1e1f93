"""What a server must answer to a message, whatever it is: header by header, by the ids that can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.layout import route_if_readable
from schemas.messages import Cancel, read_message
from schemas.status import Flag, Kind, RequestError
from schemas.verify import verify
from schemas.wire import MAX_PACKED, Route


@dataclass(frozen=True, slots=True)
class Part:
    """One header of a message. *request_id*: None when its Route cannot be read. *is_silent*: nothing may be said of it."""

    request_id: int | None
    is_silent: bool
    header: bytes


def parts_of(frames: Sequence[bytes]) -> list[Part]:
    """Return what a server must answer, header by header."""
    first = 1 if frames[0] == b"" and len(frames) > 1 else 0
    header, rest = frames[first], frames[first + 1 :]
    route = route_if_readable(header)
    if route is None or not route.flags & Flag.PACKED or not rest:
        return [_part(header, route, len(rest))]
    if len(rest) >= MAX_PACKED:
        return [Part(route.request_id, False, header)]
    return [_part(one, route_if_readable(one), 0) for one in (header, *rest)]


def _part(header: bytes, route: Route | None, frames: int) -> Part:
    if route is None:
        return Part(None, False, header)
    return Part(route.request_id, _is_cancel(header, route, frames), header)


def _is_cancel(header: bytes, route: Route, frames: int) -> bool:
    """True for a valid Cancel of nothing that is in flight: it has no reply."""
    if route.kind != Kind.CANCEL or route.payload_frames or frames:
        return False
    try:
        return isinstance(read_message(header)[1], Cancel)
    except RequestError:
        return False


def is_sound(header: bytes) -> bool:
    """True when our verifier takes *header*."""
    try:
        verify(header)
    except RequestError:
        return False
    return True
