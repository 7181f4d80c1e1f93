"""The requests that a generator sends in turn: finished messages in one table, as ``requests.h`` reads it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.status import Flag
from schemas.templates import RequestTemplate

_PACKED = int(Flag.IDEMPOTENT | Flag.PACKED)


@dataclass(frozen=True, slots=True)
class Requests:
    """Messages of equal form.

    Args:
        messages: the frames of each message.
        headers: how many of a message's frames, from the first on, are headers that get an id.
        id_at: the byte of each header where the id is patched in.
    """

    messages: tuple[tuple[bytes, ...], ...]
    headers: int
    id_at: int = 0

    @classmethod
    def of(cls, headers: Sequence[bytes], frames: Sequence[Sequence[bytes]] | None = None) -> Requests:
        """Return ordinary requests, header i with the payload *frames* i.

        Raises:
            ValueError: the headers have not all the same layout.
        """
        payloads = frames or [()] * len(headers)
        messages = tuple((header, *payload) for header, payload in zip(headers, payloads, strict=True))
        return cls(messages, 1, _common_route(headers))

    @classmethod
    def packed(cls, template: RequestTemplate, rows: Sequence[bytes], count: int) -> Requests:
        """Return messages of *count* requests each, all with their one tensor inline; as many rows as fill whole messages."""
        headers = [template.header(0, 0, [row], flags=_PACKED) for row in rows]
        whole = len(headers) - len(headers) % count
        messages = tuple(tuple(headers[at : at + count]) for at in range(0, whole, count))
        return cls(messages, count, _common_route(headers))

    @classmethod
    def http(cls, bodies: Sequence[bytes]) -> Requests:
        """Return whole HTTP requests; they have no ids."""
        return cls(tuple((body,) for body in bodies), 0)

    @property
    def message_bytes(self) -> int:
        """Bytes of the first message, all its frames."""
        return sum(map(len, self.messages[0]))

    def table(self) -> bytes:
        """Return the table that the generators read."""
        frames = [frame for message in self.messages for frame in message]
        words = [len(self.messages), self.headers, len(self.messages[0]), self.id_at, *map(len, frames)]
        return struct.pack(f"<{len(words)}Q", *words) + b"".join(frames)


def route_at(header: bytes | bytearray) -> int:
    """Return the byte where the request id lies: start of ``Message.route`` (field 0) of a finished header."""
    (root,) = struct.unpack_from("<I", header, 0)
    (vtable_back,) = struct.unpack_from("<i", header, root)
    (field,) = struct.unpack_from("<H", header, root - vtable_back + 4)
    return int(root + field)


def _common_route(headers: Sequence[bytes]) -> int:
    places = {route_at(header) for header in headers}
    if len(places) != 1:
        raise ValueError(f"headers of one layout expected, got routes at {sorted(places)}")
    return places.pop()
