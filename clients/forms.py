"""Forms: for each kind of request that a client makes its prebuilt header, and which tensors go into it.

A tick's form is found again by (model, names, datatypes, shapes, options) in 1 us; a new one costs 150 us. Whether the server
takes such a request is checked once, when its form is made: sizes are part of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.arrays import Described, Source, describe
from schemas.messages import Limits
from schemas.params import Params
from schemas.status import Code, Flag, RequestError, printable
from schemas.templates import RequestOptions, RequestTemplate, TensorForm
from schemas.wire import MAX_HEADER_BYTES, MAX_INLINE_BYTES, MAX_LIST
from schemas.wire_tensors import Lease as LeaseRef

from .calls import Options
from .leases import Frame, LeasedTensor

# Pictures of ever new sizes are forms of their own; beyond this many all are forgotten.
MAX_FORMS = 1024
# Of a header's 64 KiB; the rest is for names, shapes and parameters.
MAX_INLINE_TOTAL_BYTES = MAX_HEADER_BYTES * 3 // 4

_IN_HEADER = ("version", "outputs", "params", "priority", "finite", "client_request_id", "checksum")
_PER_CALL = Options.__annotations__.keys() - set(_IN_HEADER)

Tensors = tuple[tuple[str, Described | LeasedTensor], ...]
_REPLY_IN_LEASE = int(Flag.REPLY_IN_LEASE)


@dataclass(frozen=True, slots=True)
class Form:
    """How requests of one form are made: the template, and which inputs (by position) go inline and into frames.

    *flags* are those that it adds to a request's; *names_leases* says that an input or output is in a lease.
    """

    template: RequestTemplate
    inline: tuple[int, ...]
    frames: tuple[int, ...]
    flags: int = 0
    names_leases: bool = False


class Forms:
    """The forms of one server. Owned by one thread."""

    def __init__(self) -> None:
        self._limits = Limits()
        self._forms: dict[Hashable, Form] = {}

    def use_limits(self, limits: Limits) -> None:
        """Check new forms against *limits*; old ones were checked against others and are forgotten."""
        self._limits = limits
        self._forms.clear()

    def find(self, model: str, tensors: Tensors, options: Options) -> Form:
        """Return the form of requests like this one.

        Raises:
            RequestError: no server, or not this one, would take it.
            TypeError: an option is unknown.
        """
        key = (model, tensors, _options_key(options) if options else ())
        return self._forms.get(key) or self._add(key, model, tensors, options)

    def _add(self, key: Hashable, model: str, tensors: Tensors, options: Options) -> Form:
        form = make_form(model, tensors, options)
        self._check(form, tensors)
        if len(self._forms) >= MAX_FORMS:
            self._forms.clear()
        self._forms[key] = form
        return form

    def _check(self, form: Form, tensors: Tensors) -> None:
        """Check the sizes of *form* against the server's limits; a limit of 0 was not told."""
        limits = self._limits
        header_bytes = len(form.template.header(0, 0, [bytes(tensors[index][1][2]) for index in form.inline]))
        frame_bytes = sum(tensors[index][1][2] for index in form.frames)
        for field, limit, got in (
            ("header", limits.max_header, header_bytes),
            ("payload_frames", limits.max_frames, len(form.frames)),
            ("inputs", limits.max_payload, header_bytes + frame_bytes),
        ):
            if limit and got > limit:
                unit = "frames" if field == "payload_frames" else "bytes"
                raise RequestError(Code.TOO_LARGE, field=field, expected=f"at most {limit} {unit} (the server's limit)", got=got)


def describe_all(inputs: Mapping[str, Any]) -> tuple[Tensors, list[Source]]:
    """Return what the wire says of each input, and what holds its bytes; those in a frame of a lease stay there.

    Raises:
        RequestError: BAD_DTYPE when the wire has no such datatype.
    """
    described: list[tuple[str, Described | LeasedTensor]] = []
    sources: list[Source] = []
    for name, value in inputs.items():
        if type(value) is Frame:
            described.append((name, value.as_input()))
            sources.append(b"")
        else:
            about, source = describe(value, name)
            described.append((name, about))
            sources.append(source)
    return tuple(described), sources


def make_form(model: str, tensors: Tensors, options: Options) -> Form:
    """Build a form: tensors up to 4 KiB inline as long as the header has room for them, the others in frames."""
    specs: list[TensorForm] = []
    room = MAX_INLINE_TOTAL_BYTES
    for name, about in tensors:
        dtype, shape, nbytes, content_type = about[:4]
        lease = about[4] if len(about) == 5 else None
        is_inline = lease is None and nbytes <= min(MAX_INLINE_BYTES, room)
        room -= nbytes if is_inline else 0
        specs.append(TensorForm(_text(name, "inputs"), dtype, shape, nbytes, is_inline, content_type, lease))
    written = _request_options(options)
    return Form(
        RequestTemplate(_text(model, "model"), specs, written),
        tuple(index for index, spec in enumerate(specs) if spec.inline),
        tuple(index for index, spec in enumerate(specs) if not spec.inline and spec.lease is None),
        _REPLY_IN_LEASE if written.output_leases else 0,
        bool(written.output_leases) or any(spec.lease is not None for spec in specs),
    )


def _options_key(options: Options) -> Hashable:
    """Return what of *options* is written in the header, as a key; 1, 1.0 and True are different parameters."""
    if options.keys() <= _PER_CALL:
        return ()
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown option {', '.join(sorted(unknown))}; there are {', '.join(Options.__annotations__)}")
    key: list[Hashable] = []
    for name in _IN_HEADER:
        value: Any = options.get(name)
        if name == "outputs" and isinstance(value, Mapping):
            value = tuple(zip(value, output_leases(value), strict=True))
        elif isinstance(value, Mapping):
            value = tuple((param, type(setting), setting) for param, setting in value.items())
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = tuple(value)
        key.append(value)
    return tuple(key)


def _request_options(options: Options) -> RequestOptions:
    priority = options.get("priority", 0)
    if not 0 <= priority <= 255:
        raise RequestError(Code.BAD_PARAM, field="priority", expected="0 to 255", got=priority)
    outputs = tuple(options.get("outputs") or ())
    if isinstance(options.get("outputs"), str):
        raise RequestError(Code.BAD_PARAM, field="outputs", expected="a sequence of names", got="one text")
    return RequestOptions(
        version=options.get("version", ""),
        outputs=outputs,
        output_leases=_leases_wanted(options.get("outputs")),
        params=_checked_params(options.get("params") or {}),
        client_request_id=options.get("client_request_id", ""),
        finite=options.get("finite", False),
        # Any but 0 makes room for the one that each request has.
        checksum=1 if options.get("checksum") else 0,
        priority=priority,
    )


def output_leases(wanted: Mapping[str, Frame | None]) -> list[LeaseRef | None]:
    """Return where each wanted output is to be put; None where the server chooses."""
    return [None if frame is None else frame.as_output() for frame in wanted.values()]


def _leases_wanted(wanted: Sequence[str] | Mapping[str, Frame | None] | None) -> tuple[LeaseRef | None, ...]:
    leases = output_leases(wanted) if isinstance(wanted, Mapping) else []
    return tuple(leases) if any(leases) else ()


def _checked_params(params: Params) -> Params:
    """Return *params* once each can be written: the verifier of the template checks the rest."""
    if len(params) > MAX_LIST:
        raise RequestError(Code.BAD_PARAM, field="params", expected=f"at most {MAX_LIST}", got=len(params))
    for name, value in params.items():
        wrong_type = not isinstance(value, bool | int | float | str)
        if wrong_type or (isinstance(value, int) and not -(1 << 63) <= value < 1 << 63):
            got = printable(value) if not wrong_type else type(value).__name__
            raise RequestError(Code.BAD_PARAM, field=printable(name), expected="a bool, i64, finite double or text", got=got)
    return params


def _text(text: object, field: str) -> str:
    """Return a name once it can be written."""
    if not isinstance(text, str) or not text:
        raise RequestError(Code.BAD_NAME, field=field, expected="a name", got=printable(text))
    return text
