"""Forms: for each kind of request that a client makes its prebuilt header, and which tensors go into it.

A tick's form is found again by (model, names, datatypes, shapes, options) in 1 us; a new one costs 150 us. Whether the server
takes such a request is checked once, when its form is made: sizes are part of it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.arguments import name as a_name
from schemas.arguments import text, truth, whole_number, writable, wrong_kind
from schemas.arrays import Described, Source, describe
from schemas.checksum import payload_checksum
from schemas.messages import Limits
from schemas.params import Params
from schemas.status import Code, Flag, KeyPolicy, RequestError, printable
from schemas.templates import RequestOptions, RequestTemplate, TensorForm
from schemas.wire import MAX_HEADER_BYTES, MAX_INLINE_BYTES, MAX_LIST
from schemas.wire_tensors import Lease as LeaseRef

from .calls import Options
from .errors import refused_here
from .leases import Frame, LeasedTensor

# Pictures of ever new sizes are forms of their own; beyond this many all are forgotten.
MAX_FORMS = 1024
# Of a header's 64 KiB; the rest is for names, shapes and parameters.
MAX_INLINE_TOTAL_BYTES = MAX_HEADER_BYTES * 3 // 4

_IN_HEADER = (
    "version", "outputs", "params", "priority", "finite", "client_request_id", "checksum", "key_policy", "latest_n",
)  # fmt: skip
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

    def sealed(self, header: bytes, parts: Sequence[bytes | memoryview]) -> bytes:
        """Return *header* with the checksum of the payload's *parts*.

        Raises:
            RequestRefused: the library for it is not installed.
        """
        try:
            return self.template.with_checksum(header, payload_checksum(parts))
        except RequestError as error:
            raise refused_here(error) from None


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
            TypeError: an option is unknown, or not of its kind.
        """
        key = (model, tensors, _options_key(options) if options else ())
        try:
            form = self._forms.get(key)
        except TypeError:
            # Something that cannot be a key cannot be sent either: making the form says what.
            make_form(model, tensors, options)
            raise
        return form or self._add(key, model, tensors, options)

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
    for given, about in tensors:
        dtype, shape, nbytes, content_type = about[:4]
        lease = about[4] if len(about) == 5 else None
        name = a_name(given, "inputs")
        is_inline = lease is None and nbytes <= min(MAX_INLINE_BYTES, room)
        room -= nbytes if is_inline else 0
        writable(content_type, name, Code.BAD_PARAM)
        specs.append(TensorForm(name, dtype, shape, nbytes, is_inline, content_type, lease))
    written = _request_options(options)
    return Form(
        RequestTemplate(a_name(model, "model"), specs, written),
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
    priority = whole_number(options.get("priority", 0), "priority")
    if not 0 <= priority <= 255:
        raise RequestError(Code.BAD_PARAM, field="priority", expected="0 to 255", got=priority)
    return RequestOptions(
        version=text(options.get("version", ""), "version"),
        outputs=_checked_outputs(options.get("outputs") or ()),
        output_leases=_leases_wanted(options.get("outputs")),
        params=_checked_params(options.get("params") or {}),
        client_request_id=text(options.get("client_request_id", ""), "client_request_id"),
        key_policy=_key_policy(options),
        latest_n=whole_number(options.get("latest_n", 0), "latest_n"),
        finite=truth(options.get("finite", False), "finite"),
        # Any but 0 makes room for the one that each request has.
        checksum=1 if truth(options.get("checksum", False), "checksum") else 0,
        priority=priority,
    )


def output_leases(wanted: Mapping[str, Frame | None]) -> list[LeaseRef | None]:
    """Return where each wanted output is to be put; None where the server chooses."""
    return [None if frame is None else frame.as_output() for frame in wanted.values()]


def _leases_wanted(wanted: Sequence[str] | Mapping[str, Frame | None] | None) -> tuple[LeaseRef | None, ...]:
    leases = output_leases(wanted) if isinstance(wanted, Mapping) else []
    return tuple(leases) if any(leases) else ()


def _key_policy(options: Options) -> KeyPolicy:
    """Return the policy once it and its number make sense; whether the lane takes so many is the server's to say."""
    policy, number = options.get("key_policy", KeyPolicy.ONE_BY_ONE), whole_number(options.get("latest_n", 0), "latest_n")
    if policy not in list(KeyPolicy):
        expected = ", ".join(f"KeyPolicy.{one.name}" for one in KeyPolicy)
        raise RequestError(Code.BAD_PARAM, field="key_policy", expected=expected, got=printable(policy))
    expected = "1 to 65535" if policy == KeyPolicy.LATEST_N else f"0 with {KeyPolicy(policy).name}"
    if not (1 <= number <= 0xFFFF if policy == KeyPolicy.LATEST_N else number == 0):
        raise RequestError(Code.BAD_PARAM, field="latest_n", expected=expected, got=printable(number))
    return KeyPolicy(policy)


def _checked_outputs(outputs: object) -> tuple[str, ...]:
    """Return the names of the outputs wanted."""
    if isinstance(outputs, str):
        raise RequestError(Code.BAD_PARAM, field="outputs", expected="a sequence of names", got="one text")
    if not isinstance(outputs, Sequence | Mapping):
        raise wrong_kind("outputs", "a sequence of names, or a mapping from name to frame", outputs)
    return tuple(a_name(one, "outputs") for one in outputs)


def _checked_params(params: Params) -> Params:
    """Return *params* once each can be written: the verifier of the template checks the rest."""
    if not isinstance(params, Mapping):
        raise wrong_kind("params", "a mapping from name to value", params)
    if len(params) > MAX_LIST:
        raise RequestError(Code.BAD_PARAM, field="params", expected=f"at most {MAX_LIST}", got=len(params))
    for name, value in params.items():
        text(name, "params")
        if isinstance(value, str):
            writable(value, name, Code.BAD_PARAM)
        wrong_type = not isinstance(value, bool | int | float | str)
        if wrong_type or (isinstance(value, int) and not -(1 << 63) <= value < 1 << 63):
            got = printable(value) if not wrong_type else type(value).__name__
            raise RequestError(Code.BAD_PARAM, field=printable(name), expected="a bool, i64, finite double or text", got=got)
    return params
