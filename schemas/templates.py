"""Templates: headers built once and patched per message, about 1 us each instead of 100.

A template is the constant pieces of a header and the places between them; a message is one ``bytes.join``. The positions come
from the verifier, which also proves the template sound. Error replies are in ``error_templates.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from struct import Struct
from typing import Any, NamedTuple

from schemas.encode import encode
from schemas.layout import Layout, read_layout
from schemas.params import Params, param_tables
from schemas.status import Flag, KeyPolicy, Kind, Place
from schemas.tables import BodyTag
from schemas.tensor_tables import requested_outputs, tensor_tables
from schemas.tensors import DType
from schemas.verify import Span
from schemas.wire import ROUTE, STAGE_TIME, Ids, Route
from schemas.wire_tensors import Lease

Buffer = Any  # bytes, bytearray, memoryview or a C-contiguous array: what bytes.join takes

# Bound once: each look-up saved is 2 % of a header.
_pack_route = ROUTE.pack
_pack_u32 = Struct("<I").pack
_INFER_REQUEST = int(Kind.INFER_REQUEST)
_INFER_REPLY = int(Kind.INFER_REPLY)
_ONE_BYTE = [bytes([number]) for number in range(256)]
NO_ROUTE = Route._make([0] * len(Route._fields))


class TensorForm(NamedTuple):
    """What a template knows of one tensor; those neither *inline* nor in a *lease* take payload frames 0, 1, ..."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    nbytes: int
    inline: bool = False
    content_type: str = ""
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What a request may say besides its model and tensors; the defaults are those of ``infer.fbs``.

    Attributes:
        version: "" = by the server's policy.
        outputs: names of the outputs wanted, () = all.
        output_leases: the frame that each of them is wanted in, None where the server chooses; () = none has one.
        priority: 0 = the lane's default level, 1 = highest.
    """

    version: str = ""
    outputs: tuple[str, ...] = ()
    params: Params = field(default_factory=dict)
    client_request_id: str = ""
    key_policy: KeyPolicy = KeyPolicy.ONE_BY_ONE
    latest_n: int = 0
    finite: bool = False
    checksum: int = 0
    priority: int = 0
    output_leases: tuple[Lease | None, ...] = ()


_NO_OPTIONS = RequestOptions()


class RequestTemplate:
    """The header of all requests with one model, one set of shapes and one set of options.

    Attributes:
        frames: payload frames that each request needs.

    Raises:
        RequestError: a tensor or option that no server would take, such as nbytes that do not fit the shape.
    """

    __slots__ = ("_checksum_at", "_header_bytes", "_inline", "_pieces", "_priority", "_route", "_sizes", "frames")

    def __init__(self, model: str, tensors: Sequence[TensorForm], options: RequestOptions = _NO_OPTIONS) -> None:
        body = {
            "model": model,
            "version": options.version or None,
            "inputs": tensor_tables(tensors),
            "outputs": requested_outputs(options) or None,
            "params": param_tables(options.params) or None,
            "client_request_id": options.client_request_id or None,
            "key_policy": options.key_policy,
            "latest_n": options.latest_n,
            "finite": options.finite,
            "checksum": options.checksum or None,
        }
        header = encode(NO_ROUTE, BodyTag.INFER, body)
        layout = read_layout(header)
        inline = _inline_spans(layout)
        self._pieces, (self._route, *places) = cut(header, [span(layout.route_at, ROUTE.size), *inline])
        self._inline = _inline_slice(self._pieces, places)
        self._sizes = (0, *(end - start for start, end in inline))
        self._header_bytes = len(header)
        self._priority = options.priority
        self._checksum_at = layout.checksum_at
        self.frames = layout.frames

    def header(
        self,
        request_id: int,
        budget_us: int,
        inline: Sequence[Buffer] = (),
        *,
        born_us: int = 0,
        key: int = 0,
        flags: int = Flag.IDEMPOTENT,
    ) -> bytes:
        """Return the header of one request.

        Args:
            budget_us: time left, 0 = the lane's default.
            inline: the contents of the inline tensors, in their order.
            flags: Flag bits.

        Raises:
            ValueError: *inline* has not as many buffers, or not the sizes, that the template was made for.
        """
        pieces = self._pieces.copy()
        pieces[self._route] = _pack_route(
            request_id, budget_us, born_us, key, 0, 0, flags, self.frames, 0, _INFER_REQUEST, self._priority, 0
        )
        pieces[self._inline] = inline
        header = b"".join(pieces)
        # The sum tells a wrong size at no cost, unless two buffers could make up for each other.
        if len(header) != self._header_bytes or len(inline) > 1:
            _check_sizes(inline, b"", self._sizes)
        return header

    def with_checksum(self, header: bytes, checksum: int) -> bytes:
        """Return *header*, which this template made, with the payload's *checksum*; the options must have said one."""
        at = self._checksum_at
        assert at >= 0, "the template's options have no checksum"
        return header[:at] + checksum.to_bytes(8, "little") + header[at + 8 :]


class ReplyPlaces(NamedTuple):
    """The header of a reply, flags and kind in place, and the offsets of what differs from reply to reply."""

    header: bytes
    route: int
    timing: int
    retries: int
    backlog: int
    inline: tuple[int, ...]


class ReplyTemplate:
    """The header of all replies of one lane with one set of output shapes and *stages* rows of times.

    Attributes:
        frames: payload frames that each reply needs.
    """

    __slots__ = (
        "_backlog",
        "_header_bytes",
        "_inline",
        "_lengths",
        "_pieces",
        "_retries",
        "_route",
        "_sizes",
        "_timing",
        "frames",
    )

    def __init__(self, model: str, version: str, outputs: Sequence[TensorForm], stages: int) -> None:
        body = {
            "model": model,
            "version": version or None,
            "outputs": tensor_tables(outputs),
            "timing": bytes(stages * STAGE_TIME.size),
            "retries": 0,
            "backlog_us": 0,
        }
        header = encode(NO_ROUTE, BodyTag.INFER_OUT, body)
        layout = read_layout(header)
        inline = _inline_spans(layout)
        timing_bytes = stages * STAGE_TIME.size
        spans = [span(layout.route_at, ROUTE.size), span(layout.timing_at, timing_bytes), span(layout.retries_at, 1)]
        self._pieces, places = cut(header, [*spans, span(layout.backlog_at, 4), *inline])
        self._route, self._timing, self._retries, self._backlog = places[:4]
        self._inline = _inline_slice(self._pieces, places[4:])
        self._sizes = (timing_bytes, *(end - start for start, end in inline))
        self._header_bytes = len(header)
        # Buffers of bytes have these lengths; only for others must their bytes be asked for.
        self._lengths = list(self._sizes[1:])
        self.frames = layout.frames

    def header(
        self, ids: Ids, timing: bytes, retries: int, backlog_us: int, inline: Sequence[Buffer] = (), flags: int = Flag.FINAL
    ) -> bytes:
        """Return the header of one reply.

        Args:
            ids: (request_id, born_us, key) of the request.
            timing: the stages' ``STAGE_TIME`` records, 12 bytes each; see ``pack_timing``.
            retries: at most 255.
            backlog_us: at most 2^32 - 1.
            inline: the contents of the inline outputs, in their order.

        Raises:
            ValueError: *timing* or *inline* has not the sizes that the template was made for.
        """
        request_id, born_us, key = ids
        pieces = self._pieces.copy()
        pieces[self._route] = _pack_route(request_id, 0, born_us, key, 0, 0, flags, self.frames, 0, _INFER_REPLY, 0, 0)
        pieces[self._timing] = timing
        pieces[self._retries] = _ONE_BYTE[retries]
        pieces[self._backlog] = _pack_u32(backlog_us)
        pieces[self._inline] = inline
        header = b"".join(pieces)
        if len(header) != self._header_bytes or len(timing) != self._sizes[0] or list(map(len, inline)) != self._lengths:
            _check_sizes(inline, timing, self._sizes)
        return header

    def places(self) -> ReplyPlaces:
        """Return a whole header with zeros where each reply differs, and where these places are."""
        header = self.header((0, 0, 0), bytes(self._sizes[0]), 0, 0, [bytes(size) for size in self._sizes[1:]])
        starts = list(accumulate((len(piece) for piece in self._pieces), initial=0))
        inline = tuple(starts[self._inline])
        return ReplyPlaces(
            header, starts[self._route], starts[self._timing], starts[self._retries], starts[self._backlog], inline
        )


def pack_timing(rows: Iterable[tuple[int, int, int]]) -> bytes:
    """Return (queue_us, run_us, batch) of each stage as the wire has them."""
    return b"".join([STAGE_TIME.pack(*row) for row in rows])


def cut(header: bytes, spans: list[Span]) -> tuple[list[Buffer], list[int]]:
    """Cut *header* at *spans*: return the pieces, and for each span, in the order given, the index of its piece."""
    pieces: list[Buffer] = []
    at = 0
    for start, end in sorted(spans):
        pieces += [header[at:start], header[start:end]]
        at = end
    starts = sorted(start for start, _ in spans)
    return [*pieces, header[at:]], [2 * starts.index(start) + 1 for start, _ in spans]


def span(at: int, size: int) -> Span:
    """Return the span of *size* bytes at *at*."""
    return at, at + size


def _inline_spans(layout: Layout) -> list[Span]:
    return [span(tensor.inline_at, tensor.nbytes) for tensor in layout.tensors if tensor.place == Place.INLINE]


def _inline_slice(pieces: list[Buffer], places: list[int]) -> slice:
    """Return the slice of *pieces* that the inline tensors take: the last variable ones, since the encoder writes them first."""
    first = len(pieces) - 2 * len(places)
    assert places == list(range(first, len(pieces), 2)), "inline tensors do not lie last and in order"
    return slice(first, len(pieces), 2)


def _check_sizes(inline: Sequence[Buffer], timing: bytes, sizes: tuple[int, ...]) -> None:
    """Say which buffer has not the size that the template was made for; *sizes* are those of the timing and the tensors."""
    for index, (buffer, expected) in enumerate(zip([timing, *inline], sizes, strict=True)):
        got = memoryview(buffer).nbytes
        if got != expected:
            name = f"inline tensor {index - 1}" if index else "timing"
            raise ValueError(f"{name}: expected {expected} bytes, got {got}")
