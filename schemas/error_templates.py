"""Error replies: headers patched from templates, so that answering BUSY costs little exactly when there is no time."""

from __future__ import annotations

from struct import Struct

from schemas.encode import encode
from schemas.status import Code, Flag, Kind
from schemas.tables import BodyTag
from schemas.templates import NO_ROUTE, Buffer, cut, span
from schemas.verify import verify
from schemas.wire import MAX_MESSAGE_BYTES, ROUTE, Ids

# A stage or field: the sender made it printable, at most 64 characters, perhaps with an index.
_MAX_NAME_BYTES = 128

_pack_route = ROUTE.pack
_pack_u16 = Struct("<H").pack
_pack_u64 = Struct("<Q").pack
_ERROR = int(Kind.ERROR)
_FINAL = int(Flag.FINAL)


class ErrorTemplates:
    """Headers of error replies. Owned by one thread.

    A template fits all errors whose texts have the same three lengths, so that even texts that differ each time cost 2 us.
    """

    # Lengths that repeat are few; a flood of others starts over.
    _LIMIT = 1024

    __slots__ = ("_by_lengths",)

    def __init__(self) -> None:
        self._by_lengths: dict[tuple[int, int, int], tuple[list[Buffer], list[int]]] = {}

    def header(self, ids: Ids, code: Code, message: str, *, retry_after_us: int = 0, stage: str = "", field: str = "") -> bytes:
        """Return the header of one error reply; texts are cut to what the wire allows.

        Args:
            ids: (request_id, born_us, key) of the request, zeros when its route could not be read.
            retry_after_us: when to try again, with 2xx codes only.
        """
        texts = (_cut_text(message, MAX_MESSAGE_BYTES), _cut_text(stage, _MAX_NAME_BYTES), _cut_text(field, _MAX_NAME_BYTES))
        lengths = (len(texts[0]), len(texts[1]), len(texts[2]))
        template = self._by_lengths.get(lengths) or self._add(lengths)
        request_id, born_us, key = ids
        pieces = template[0].copy()
        route, code_at, retry, message_at, stage_at, field_at = template[1]
        pieces[route] = _pack_route(request_id, 0, born_us, key, 0, 0, _FINAL, 0, 0, _ERROR, 0, 0)
        pieces[code_at] = _pack_u16(code)
        pieces[retry] = _pack_u64(retry_after_us)
        pieces[message_at], pieces[stage_at], pieces[field_at] = texts
        return b"".join(pieces)

    def _add(self, lengths: tuple[int, int, int]) -> tuple[list[Buffer], list[int]]:
        message, stage, field = (b" " * length for length in lengths)
        body = {"code": 0, "message": message, "retry_after_us": 0, "stage": stage, "field": field}
        header = encode(NO_ROUTE, BodyTag.FAILURE, body)
        route_at, _, _, _, (code_at, message_span, retry_at, stage_span, field_span) = verify(header).values
        spans = [span(route_at, ROUTE.size), span(code_at, 2), span(retry_at, 8)]
        template = cut(header, [*spans, span(*message_span), span(*stage_span), span(*field_span)])
        if len(self._by_lengths) >= self._LIMIT:
            self._by_lengths.clear()
        self._by_lengths[lengths] = template
        return template


def _cut_text(text: str, limit: int) -> bytes:
    """Return *text* as at most *limit* bytes of whole UTF-8 characters."""
    raw = text.encode(errors="replace")
    return raw if len(raw) <= limit else raw[:limit].decode(errors="ignore").encode()
