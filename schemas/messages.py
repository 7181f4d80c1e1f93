"""The rare messages: everything but requests and their replies, as frozen values, read and written whole (about 100 us each).

A body's attributes have the names that its table has in ``infer.fbs``; texts that are absent there are "" here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import IntEnum
from typing import Any, ClassVar

from schemas.encode import encode
from schemas.layout import KINDS, Layout, layout_of
from schemas.params import Params, param_tables, read_params
from schemas.status import Code, ControlOp, Flag, HealthScope, RequestError
from schemas.tables import BODIES, BodyTag
from schemas.tensors import DType, TensorSpec
from schemas.verify import Span, Values, verify
from schemas.wire import ROUTE, Ids, Route

_FIRST_REPLY_KIND = 16  # kinds from here on go from the broker to a client


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request got no result. An unknown code of a newer server is read as the plainest code of its hundred."""

    tag: ClassVar = BodyTag.FAILURE
    code: Code = Code.NONE
    message: str = ""
    retry_after_us: int = 0
    stage: str = ""
    field: str = ""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ends the request whose id the Route names."""

    tag: ClassVar = BodyTag.CANCEL
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """A client's first message. client: "name/version". identifiers: file identifiers that it reads."""

    tag: ClassVar = BodyTag.HELLO
    client: str = ""
    identifiers: tuple[str, ...] = ()
    packed_replies: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """What the broker takes: bytes, counts and microseconds."""

    max_header: int = 0
    max_payload: int = 0
    max_frames: int = 0
    max_in_flight: int = 0
    default_budget_us: int = 0
    max_budget_us: int = 0


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to a Hello. epoch: random per life of the broker; another one means that requests in flight are lost."""

    tag: ClassVar = BodyTag.WELCOME
    server: str = ""
    epoch: int = 0
    limits: Limits = Limits()
    lease_socket: str = ""
    lease_token: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """A question: is the server live, ready, or a model ready?"""

    tag: ClassVar = BodyTag.HEALTH
    scope: HealthScope = HealthScope.LIVE
    model: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class HealthReply:
    """The answer. state: starting, serving, degraded or draining; queued and in_flight count requests."""

    tag: ClassVar = BodyTag.HEALTH_OUT
    ok: bool = False
    state: str = ""
    queued: int = 0
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Metadata:
    """Asks what a model takes and gives; no model = what the server is."""

    tag: ClassVar = BodyTag.METADATA
    model: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class MetadataReply:
    """What a model takes and gives. stages: the names of the rows of a reply's timing."""

    tag: ClassVar = BodyTag.METADATA_OUT
    name: str = ""
    versions: tuple[str, ...] = ()
    platform: str = ""
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    extensions: tuple[str, ...] = ()
    max_batch: int = 0
    stages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Control:
    """An order to the broker, taken on its control socket only."""

    tag: ClassVar = BodyTag.CONTROL
    op: ControlOp = ControlOp.UNSET
    model: str = ""
    version: str = ""
    params: Params = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ControlReply:
    """The answer. stats: counters and settings by name."""

    tag: ClassVar = BodyTag.CONTROL_OUT
    done: bool = False
    stats: Params = field(default_factory=dict)


Body = Failure | Cancel | Hello | Welcome | Health | HealthReply | Metadata | MetadataReply | Control | ControlReply


def write_message(body: Body, ids: Ids = (0, 0, 0)) -> bytes:
    """Return the header of a message with *body*; replies are marked final.

    Args:
        ids: (request_id, born_us, key); in a reply those of what it answers.

    Raises:
        RequestError: OUTPUT_TOO_LARGE when it does not fit into a header.
    """
    kind = KINDS[body.tag][0]
    flags = Flag.FINAL if kind >= _FIRST_REPLY_KIND else 0
    request_id, born_us, key = ids
    route = Route(request_id, 0, born_us, key, 0, 0, flags, 0, 0, kind, 0, 0)
    return encode(route, body.tag, _to_table(body))


def read_message(header: bytes) -> tuple[Route, Body | Layout | None]:
    """Return the Route and the body of any header: a Layout for requests and replies with tensors, None for those without one.

    Raises:
        RequestError: what ``verify`` and ``read_layout`` raise; BAD_KIND when kind and body differ, BAD_PARAM for a value that
            its enumeration does not have.
    """
    verified = verify(header)
    route_at, _, _, tag_number, values = verified.values
    route = Route._make(ROUTE.unpack_from(header, route_at))
    tag = BodyTag(tag_number)
    if route.kind not in KINDS[tag]:
        raise RequestError(Code.BAD_KIND, field="kind", expected=f"{KINDS[tag][0].name} with this body", got=route.kind)
    if tag in (BodyTag.INFER, BodyTag.INFER_OUT):
        return route, layout_of(verified, key=0)
    if tag == BodyTag.FAILURE:
        return route, _failure(header, values)
    return route, None if values is None else _from_table(tag, values)


def _failure(header: bytes, values: Values) -> Failure:
    code_at, message, retry_at, stage, at_fault = values
    return Failure(
        code=_known_code(_number(header, code_at, 2)),
        message=_text(header, message),
        retry_after_us=_number(header, retry_at, 8),
        stage=_text(header, stage),
        field=_text(header, at_fault),
    )


def _number(header: bytes, at: int | None, size: int) -> int:
    return 0 if at is None else int.from_bytes(header[at : at + size], "little")


def _text(header: bytes, span: Span | None) -> str:
    at, size = span or (0, 0)
    return header[at : at + size].decode(errors="replace")


def _known_code(number: int) -> Code:
    """Return the Code of *number*, or of its hundred: what a client does about it depends on that alone."""
    try:
        return Code(number)
    except ValueError:
        return {1: Code.NOT_SUPPORTED, 2: Code.BUSY, 4: Code.CANCELLED}.get(number // 100, Code.INTERNAL)


_CLASSES: dict[BodyTag, type[Any]] = {
    cls.tag: cls for cls in (Cancel, Hello, Welcome, Health, HealthReply, Metadata, MetadataReply, Control, ControlReply)
}


def _from_table(tag: BodyTag, values: Values) -> Body:
    table = BODIES[tag - 1]
    known: dict[str, Any] = {}
    for wire_field, value in zip(table.fields, values, strict=True):
        if value is not None:
            read = _READERS.get(wire_field.name)
            known[wire_field.name] = read(value) if read else value
    body: Body = _CLASSES[tag](**known)
    return body


def _enumerated(kind: type[IntEnum], name: str) -> Callable[[int], Any]:
    def read(number: int) -> IntEnum:
        try:
            return kind(number)
        except ValueError:
            raise RequestError(Code.BAD_PARAM, field=name, expected=f"a {kind.__name__}", got=number) from None

    return read


def _read_specs(tables: list[Values]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, _read_dtype(dtype), shape or ()) for name, dtype, shape in tables)


_read_dtype = _enumerated(DType, "dtype")

_READERS: dict[str, Callable[[Any], Any]] = {
    "scope": _enumerated(HealthScope, "scope"),
    "op": _enumerated(ControlOp, "op"),
    "limits": lambda values: Limits(*values),
    "params": read_params,
    "stats": read_params,
    "inputs": _read_specs,
    "outputs": _read_specs,
    "identifiers": tuple,
    "versions": tuple,
    "extensions": tuple,
    "stages": tuple,
}


def _to_table(value: Any) -> dict[str, Any]:
    """Return a dataclass as the encoder takes a table: what is empty is left out."""
    return {item.name: _to_wire(getattr(value, item.name)) for item in fields(value)}


def _to_wire(value: Any) -> Any:
    if isinstance(value, Mapping):
        return param_tables(value) or None
    if isinstance(value, tuple):
        return [item if isinstance(item, str | int) else _to_table(item) for item in value] or None
    if is_dataclass(value):
        return _to_table(value)
    return None if value == "" else value
