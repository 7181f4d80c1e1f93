"""Layouts: what a verified header says apart from its free contents (``tables.py``), and how those are read by position.

Finding a layout again without a second check is in ``layout_cache.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.params import ParamValue, read_params
from schemas.status import Code, KeyPolicy, Kind, Place, RequestError, printable
from schemas.tables import BodyTag
from schemas.verify import Values, Verified, find_route, verify
from schemas.wire import MAX_CLIENT_ID_BYTES, ROUTE, STAGE_TIME, TRACE_CONTEXT, Route, Trace
from schemas.wire_tensors import Lease, WireTensor, read_tensors

# Which kinds a body may travel under; the first two have none.
KINDS: dict[BodyTag, tuple[Kind, ...]] = {
    BodyTag.NONE: (Kind.CREDIT, Kind.RELEASE),
    BodyTag.INFER: (Kind.INFER_REQUEST,),
    BodyTag.INFER_OUT: (Kind.INFER_REPLY, Kind.INFER_PART),
    BodyTag.FAILURE: (Kind.ERROR,),
    BodyTag.CANCEL: (Kind.CANCEL,),
    BodyTag.HELLO: (Kind.HELLO,),
    BodyTag.WELCOME: (Kind.WELCOME,),
    BodyTag.HEALTH: (Kind.HEALTH,),
    BodyTag.HEALTH_OUT: (Kind.HEALTH_REPLY,),
    BodyTag.METADATA: (Kind.METADATA,),
    BodyTag.METADATA_OUT: (Kind.METADATA_REPLY,),
    BodyTag.CONTROL: (Kind.CONTROL,),
    BodyTag.CONTROL_OUT: (Kind.CONTROL_REPLY,),
}

_KIND = Route._fields.index("kind")
_PAYLOAD_FRAMES = Route._fields.index("payload_frames")


@dataclass(frozen=True, slots=True)
class Layout:
    """One verified and checked header, without its free contents. Positions count from the header's first byte; -1 = not there.

    Attributes:
        key: a number of its own for callers' caches: never used twice by one LayoutCache, so bound what you keep by it. Negative,
            below -1, when the cache does not keep the layout: then it will not come again.
        kinds: the values that Route.kind may have with this body.
        frames: payload frames that its tensors use.
        tensors: inputs of an Infer, outputs of an InferOut. All that follows is empty with the other bodies (``messages.py``).
        outputs: names of the requested outputs, () = all.
        output_leases: the frame that each of them is wanted in, None where the server chooses; () = none has one.
    """

    key: int
    tag: BodyTag
    kinds: tuple[Kind, ...]
    route_at: int
    trace_at: int
    frames: int = 0
    model: str = ""
    version: str = ""
    tensors: tuple[WireTensor, ...] = ()
    params: dict[str, ParamValue] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    output_leases: tuple[Lease | None, ...] = ()
    client_request_id_at: int = -1
    client_request_id_bytes: int = 0
    key_policy: KeyPolicy = KeyPolicy.ONE_BY_ONE
    latest_n: int = 0
    finite: bool = False
    checksum_at: int = -1
    n_stages: int = 0
    timing_at: int = -1
    retries_at: int = -1
    backlog_at: int = -1


def read_layout(header: bytes) -> Layout:
    """Return the layout of *header* (key 0), verified and with all the checks that need only the header.

    Raises:
        RequestError: those of ``verify``, ``read_tensors`` and ``read_params``; BAD_NAME, BAD_PARAM, TOO_LARGE or NOT_SUPPORTED.
    """
    return layout_of(verify(header), key=0)


def read_route(header: bytes, layout: Layout) -> Route:
    """Return the Route of *header*."""
    return Route._make(ROUTE.unpack_from(header, layout.route_at))


def check_route(route: Sequence[int], layout: Layout, frames_present: int) -> None:
    """Check what a Route says against the body and the frames that came with it.

    Args:
        route: a Route, or what ``ROUTE.unpack_from`` gives.
        frames_present: payload frames of this message; 0 for a part of a Packed one.

    Raises:
        RequestError: BAD_KIND or BAD_FRAMES.
    """
    _check_kind(route, layout.kinds)
    if route[_PAYLOAD_FRAMES] != frames_present or layout.frames != frames_present:
        got = f"payload_frames {route[_PAYLOAD_FRAMES]}, {layout.frames} used by tensors, {frames_present} there"
        raise RequestError(Code.BAD_FRAMES, field="payload_frames", expected="equal numbers", got=got)


def _check_kind(route: Sequence[int], kinds: tuple[Kind, ...]) -> None:
    if route[_KIND] not in kinds:
        expected = " or ".join(kind.name for kind in kinds)
        raise RequestError(Code.BAD_KIND, field="kind", expected=f"{expected} with this body", got=route[_KIND])


def check_route_alone(header: bytes, frames_present: int) -> None:
    """Check what the Route of *header* says against the body's type and the frames that came, whatever the tensors are.

    Raises:
        RequestError: what ``verify`` raises, BAD_KIND or BAD_FRAMES.
    """
    route_at, _, _, tag_number, _ = verify(header).values
    route = ROUTE.unpack_from(header, route_at)
    _check_kind(route, KINDS[BodyTag(tag_number)])
    if route[_PAYLOAD_FRAMES] != frames_present:
        got = f"payload_frames {route[_PAYLOAD_FRAMES]}, {frames_present} there"
        raise RequestError(Code.BAD_FRAMES, field="payload_frames", expected="equal numbers", got=got)


def route_if_readable(header: bytes) -> Route | None:
    """Return the Route of a header that was refused, so that the refusal can carry its request id; None when it has none."""
    at = find_route(header)
    return None if at is None else Route._make(ROUTE.unpack_from(header, at))


def read_trace(header: bytes, layout: Layout) -> Trace | None:
    """Return the trace context of *header*, None when it has none."""
    return None if layout.trace_at < 0 else Trace._make(TRACE_CONTEXT.unpack_from(header, layout.trace_at))


def read_client_request_id(header: bytes, layout: Layout) -> str:
    """Return the client's own name of the request; bytes that are not UTF-8 become U+FFFD."""
    at = layout.client_request_id_at
    return "" if at < 0 else header[at : at + layout.client_request_id_bytes].decode(errors="replace")


def read_checksum(header: bytes, layout: Layout) -> int:
    """Return the xxh64 over the payload bytes, 0 when the request has none."""
    return 0 if layout.checksum_at < 0 else int.from_bytes(header[layout.checksum_at : layout.checksum_at + 8], "little")


def read_timing(header: bytes, layout: Layout) -> list[tuple[int, int, int]]:
    """Return (queue_us, run_us, batch) of each stage of a reply."""
    end = layout.timing_at + layout.n_stages * STAGE_TIME.size
    return list(STAGE_TIME.iter_unpack(header[layout.timing_at : end])) if layout.n_stages else []


def read_retries(header: bytes, layout: Layout) -> int:
    """Return how often a worker died under the request."""
    return 0 if layout.retries_at < 0 else header[layout.retries_at]


def read_backlog_us(header: bytes, layout: Layout) -> int:
    """Return how long the request waited for a slot."""
    return 0 if layout.backlog_at < 0 else int.from_bytes(header[layout.backlog_at : layout.backlog_at + 4], "little")


def layout_of(verified: Verified, key: int) -> Layout:
    """Return the layout of a sound header; raises what ``read_layout`` raises beyond ``verify``."""
    route_at, trace_at, _tracestate, tag_number, body = verified.values
    tag = BodyTag(tag_number)
    common = {"key": key, "tag": tag, "kinds": KINDS[tag], "route_at": route_at, "trace_at": _position(trace_at)}
    if tag == BodyTag.INFER:
        return Layout(**common, **_infer(body))
    if tag == BodyTag.INFER_OUT:
        return Layout(**common, **_infer_out(body))
    return Layout(**common)


def _position(at: int | None) -> int:
    return -1 if at is None else at


def _frames(tensors: tuple[WireTensor, ...]) -> int:
    return sum(tensor.place == Place.FRAME for tensor in tensors)


def _infer(body: Values) -> dict[str, Any]:
    model, version, inputs, outputs, params, client_id, key_policy, latest_n, finite, checksum_at = body
    if not model:
        raise RequestError(Code.BAD_NAME, field="model", expected="a name")
    id_at, id_bytes = client_id or (-1, 0)
    if id_bytes > MAX_CLIENT_ID_BYTES:
        raise RequestError(
            Code.TOO_LARGE, field="client_request_id", expected=f"at most {MAX_CLIENT_ID_BYTES} bytes", got=id_bytes
        )
    tensors = read_tensors(inputs, "inputs")
    names, leases = _requested_outputs(outputs)
    return {
        "frames": _frames(tensors),
        "model": model,
        "version": version or "",
        "tensors": tensors,
        "params": read_params(params),
        "outputs": names,
        "output_leases": leases,
        "client_request_id_at": id_at,
        "client_request_id_bytes": id_bytes,
        "key_policy": _key_policy(key_policy, latest_n),
        "latest_n": latest_n,
        "finite": finite,
        "checksum_at": _position(checksum_at),
    }


def _infer_out(body: Values) -> dict[str, Any]:
    model, version, outputs, params, timing, retries_at, backlog_at = body
    tensors = read_tensors(outputs, "outputs")
    timing_at, n_stages = timing or (-1, 0)
    return {
        "frames": _frames(tensors),
        "model": model or "",
        "version": version or "",
        "tensors": tensors,
        "params": read_params(params),
        "n_stages": n_stages,
        "timing_at": timing_at,
        "retries_at": _position(retries_at),
        "backlog_at": _position(backlog_at),
    }


def _key_policy(number: int, latest_n: int) -> KeyPolicy:
    if number > KeyPolicy.LATEST_N:
        raise RequestError(Code.BAD_PARAM, field="key_policy", expected=f"0 to {KeyPolicy.LATEST_N:d}", got=number)
    if number == KeyPolicy.LATEST_N and latest_n == 0:
        raise RequestError(Code.BAD_PARAM, field="latest_n", expected="1 or more with LatestN", got=0)
    return KeyPolicy(number)


def _requested_outputs(tables: list[Any] | None) -> tuple[tuple[str, ...], tuple[Lease | None, ...]]:
    """Return the names asked for, and the leased frame that each is wanted in. Other places are the server's choice."""
    names: list[str] = []
    leases: list[Lease | None] = []
    for name, place, lease, params in tables or ():
        if not name or name in names:
            raise RequestError(Code.BAD_NAME, field=printable(name) or "outputs", expected="a name used once")
        if place > Place.LEASE or params:
            got = "another place or parameters"
            raise RequestError(Code.NOT_SUPPORTED, field=printable(name), expected="an output by name and place", got=got)
        if (place == Place.LEASE) != (lease is not None):
            expected = "a lease with place Lease, and with no other"
            raise RequestError(Code.BAD_LEASE, field=printable(name), expected=expected)
        names.append(name)
        leases.append(None if lease is None else Lease(*lease))
    return tuple(names), tuple(leases) if any(leases) else ()
