"""From a verified header and its frames to a request of a lane: the checks that need the lane, and the copy into the slot.

Owner: the broker's main thread. Reads and writes no socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from schemas.arena import MAX_NAME_BYTES, LaneArena, Words, write_descriptor, write_name
from schemas.layout import Layout, check_route, read_checksum
from schemas.plan import DESCRIPTOR_WORDS, MAX_TENSORS, ROW_ALIGN_BYTES, LinkPlan, align
from schemas.status import Code, Flag, KeyPolicy, Place, RequestError
from schemas.tensors import NUMPY_NAME, DType, TensorSpec, unpack_bytes
from schemas.wire_tensors import WireTensor

from .lanes import Lane
from .life import Client, Request

Frame: TypeAlias = bytes | memoryview

# Bindings kept, one for each layout that clients use; more are made anew, nothing is lost.
MAX_BINDINGS = 4096
_FLOATS = frozenset({DType.FP16, DType.FP32, DType.FP64})
# Plain integers: an enum's operators cost 1 us each.
_UNSUPPORTED = int(Flag.STREAM | Flag.REPLY_IN_LEASE)
_IDEMPOTENT = int(Flag.IDEMPOTENT)


@dataclass(frozen=True, slots=True)
class Copy:
    """One tensor's way into the slot: from the header (frame -1) at *start* or from a frame, *nbytes* to *offset* of the row."""

    tensor: WireTensor
    frame: int
    start: int
    nbytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class Binding:
    """What one layout means to one lane: checked once, used by every request of that layout."""

    key: int
    lane: Lane
    layout: Layout
    rows: int
    input_bytes: int
    copies: tuple[Copy, ...]
    descriptors: Words | None
    needs_look: bool


@dataclass(slots=True)
class Payload:
    """What the broker keeps of a request until it is answered; *header* and *frames* only until they are in a slot."""

    binding: Binding
    header: bytes
    frames: Sequence[Frame]


class Intake:
    """Turns messages into requests for the lanes of one server."""

    def __init__(self, lanes: dict[str, Lane], arenas: list[LaneArena], *, max_budget_us: int) -> None:
        self._lanes = lanes
        self._max_budget_us = max_budget_us
        self._bindings: dict[int, Binding] = {}
        self._regions = [arena.regions[arena.plan.links[0].region] for arena in arenas]
        self._rows = [region.reshape(-1).data for region in self._regions]
        self._strides = [region.shape[1] for region in self._regions]
        self._descriptors = [arena.descriptors[0] for arena in arenas]
        # Which layout's descriptors each slot has now: most requests find their own.
        self._slot_layouts = [[-1] * arena.plan.slots for arena in arenas]

    def request(
        self, client: Client, layout: Layout, route: Sequence[int], header: bytes, frames: Sequence[Frame], now_ns: int
    ) -> Request:
        """Return the request that a message makes.

        Args:
            route: what ``ROUTE.unpack_from`` gives of *header*.
            now_ns: when it arrived.

        Raises:
            RequestError: what is wrong with it, by field.
        """
        check_route(route, layout, len(frames))
        binding = self._bindings.get(layout.key) or self._bind(layout)
        budget_us, flags = route[1], route[6]
        if flags & _UNSUPPORTED:
            raise RequestError(Code.NOT_SUPPORTED, field="flags", expected="no STREAM or REPLY_IN_LEASE", got=Flag(flags))
        if budget_us > self._max_budget_us:
            raise RequestError(Code.BAD_PARAM, field="budget_us", expected=f"at most {self._max_budget_us}", got=budget_us)
        if binding.needs_look or frames:
            _look_at(binding, header, frames)
        plan = binding.lane.plan
        return Request(
            0,
            client,
            route[0],
            binding.lane,
            now_ns + (budget_us or plan.default_budget_us) * 1000,
            now_ns,
            Payload(binding, header, frames),
            binding.input_bytes,
            binding.rows,
            route[10],
            route[2],
            route[3],
            bool(flags & _IDEMPOTENT) and plan.idempotent,
        )

    def fill(self, request: Request) -> None:
        """Copy a request's payload into its slot: the one copy on the way in. One that runs again finds it there."""
        payload = request.payload
        assert isinstance(payload, Payload)
        if not payload.header:
            return
        binding, slot, index = payload.binding, request.slot, request.lane.index
        rows, base = self._rows[index], slot * self._strides[index]
        for copy in binding.copies:
            at = base + copy.offset
            source = payload.header if copy.frame < 0 else payload.frames[copy.frame]
            rows[at : at + copy.nbytes] = memoryview(source)[copy.start : copy.start + copy.nbytes]
        if binding.descriptors is not None and self._slot_layouts[index][slot] != binding.key:
            self._descriptors[index][slot] = binding.descriptors
            self._slot_layouts[index][slot] = binding.key
        payload.header, payload.frames = b"", ()

    # --- the checks of one layout ----------------------------------------------------------------------------------------

    def _bind(self, layout: Layout) -> Binding:
        lane = self._lanes.get(layout.model)
        if lane is None:
            known = ", ".join(sorted(self._lanes))
            raise RequestError(Code.MODEL_NOT_FOUND, field="model", expected=f"one of {known}", got=layout.model)
        if layout.version not in ("", lane.plan.version):
            raise RequestError(Code.VERSION_NOT_FOUND, field="version", expected=lane.plan.version, got=layout.version)
        _check_supported(layout)
        link = lane.plan.links[0]
        rows = _check_inputs(layout.tensors, lane)
        known_outputs = {spec.name for spec in lane.plan.outputs}
        for name in layout.outputs if known_outputs else ():
            if name not in known_outputs:
                raise RequestError(Code.BAD_NAME, field="outputs", expected=f"of {', '.join(sorted(known_outputs))}", got=name)
        copies = _place(layout.tensors, link)
        binding = Binding(
            layout.key,
            lane,
            layout,
            rows,
            sum(copy.nbytes for copy in copies),
            copies,
            None if link.static else _descriptors(copies, link),
            layout.checksum_at >= 0
            or any(t.dtype == DType.BYTES or (layout.finite and t.dtype in _FLOATS) for t in layout.tensors),
        )
        if len(self._bindings) >= MAX_BINDINGS:
            self._bindings.clear()
        self._bindings[layout.key] = binding
        return binding


def _check_supported(layout: Layout) -> None:
    if layout.key_policy != KeyPolicy.ONE_BY_ONE:
        raise RequestError(Code.NOT_SUPPORTED, field="key_policy", expected="ONE_BY_ONE", got=layout.key_policy.name)
    if any(tensor.place == Place.LEASE for tensor in layout.tensors):
        raise RequestError(Code.NOT_SUPPORTED, field="place", expected="FRAME or INLINE", got="LEASE")


def _check_inputs(tensors: Sequence[WireTensor], lane: Lane) -> int:
    """Check names, datatypes and shapes against the lane; return the request's rows."""
    specs = {spec.name: spec for spec in lane.plan.inputs}
    if not specs:
        return _check_any(tensors)
    missing = [name for name in specs if name not in {tensor.name for tensor in tensors}]
    if missing:
        raise RequestError(
            Code.MISSING_INPUT, field=missing[0], expected=f"inputs {', '.join(specs)}", got=f"{len(tensors)} inputs"
        )
    rows = {_check_tensor(tensor, specs.get(tensor.name), lane) for tensor in tensors}
    if len(rows) > 1:
        raise RequestError(Code.BAD_SHAPE, field="inputs", expected="the same number of rows in each", got=sorted(rows))
    return rows.pop()


def _check_any(tensors: Sequence[WireTensor]) -> int:
    """Check what a lane that takes any tensors needs: few enough, with names that fit beside their descriptors."""
    if not 1 <= len(tensors) <= MAX_TENSORS:
        raise RequestError(Code.BAD_TENSOR, field="inputs", expected=f"1 to {MAX_TENSORS} tensors", got=len(tensors))
    for tensor in tensors:
        if len(tensor.name.encode()) > MAX_NAME_BYTES:
            raise RequestError(Code.BAD_NAME, field=tensor.name, expected=f"at most {MAX_NAME_BYTES} bytes", got=tensor.name)
    return 1


def _check_tensor(tensor: WireTensor, spec: TensorSpec | None, lane: Lane) -> int:
    """Check one tensor against what the lane takes under its name; return its rows."""
    if spec is None:
        known = ", ".join(s.name for s in lane.plan.inputs)
        raise RequestError(Code.BAD_NAME, field=tensor.name, expected=f"inputs {known}", got=tensor.name)
    if spec.dtype == DType.ENCODED:
        return _check_picture(tensor)
    if tensor.dtype != spec.dtype:
        raise RequestError(Code.BAD_DTYPE, field=tensor.name, expected=spec.dtype.name, got=tensor.dtype.name)
    fits = len(tensor.shape) == len(spec.shape) and all(w in (-1, h) for w, h in zip(spec.shape, tensor.shape, strict=True))
    if not fits:
        raise RequestError(Code.BAD_SHAPE, field=tensor.name, expected=list(spec.shape), got=list(tensor.shape))
    rows = tensor.shape[0] if tensor.shape else 1
    if not 1 <= rows <= lane.plan.max_rows:
        field = f"lane.{lane.plan.name}.max_rows"
        raise RequestError(Code.TOO_LARGE, field=tensor.name, expected=f"1 to {lane.plan.max_rows} rows ({field})", got=rows)
    return rows


def _check_picture(tensor: WireTensor) -> int:
    """An image lane takes an encoded picture, or its raw pixels."""
    if tensor.dtype not in (DType.ENCODED, DType.UINT8):
        raise RequestError(Code.BAD_DTYPE, field=tensor.name, expected="ENCODED or UINT8", got=tensor.dtype.name)
    if tensor.dtype == DType.UINT8 and len(tensor.shape) not in (2, 3):
        raise RequestError(Code.BAD_SHAPE, field=tensor.name, expected="(height, width) or (height, width, 3)", got=tensor.shape)
    return 1


def _place(tensors: Sequence[WireTensor], link: LinkPlan) -> tuple[Copy, ...]:
    """Say where each tensor goes: its own place in a static link, else one behind the other, in the lane's order."""
    order = [t.name for t in link.tensors]
    ordered = sorted(tensors, key=lambda t: order.index(t.name)) if order else list(tensors)
    copies: list[Copy] = []
    at = 0
    for index, tensor in enumerate(ordered):
        offset = link.tensors[index].offset if link.static else at
        start = tensor.inline_at if tensor.place == Place.INLINE else 0
        copies.append(Copy(tensor, tensor.frame, start, tensor.nbytes, offset))
        at = align(offset + tensor.nbytes, ROW_ALIGN_BYTES)
    end = copies[-1].offset + copies[-1].nbytes if copies else 0
    if end > link.row_bytes:
        raise RequestError(Code.TOO_LARGE, field="max_encoded_bytes", expected=f"at most {link.row_bytes} bytes", got=end)
    return tuple(copies)


def _descriptors(copies: Sequence[Copy], link: LinkPlan) -> Words:
    """Return the descriptor words (8, 16) of a slot with these tensors; unused ones are zero."""
    words = np.zeros((MAX_TENSORS, DESCRIPTOR_WORDS), np.uint64)
    for row, copy in zip(words, copies, strict=False):
        tensor = copy.tensor
        write_descriptor(row, tensor.dtype, tensor.shape, nbytes=tensor.nbytes, offset=copy.offset)
        if not link.tensors:
            write_name(row, tensor.name.encode())
    return words


# --- the checks of one message -------------------------------------------------------------------------------------------


def _look_at(binding: Binding, header: bytes, frames: Sequence[Frame]) -> None:
    """Check what lies in the payload: frame sizes, the form of BYTES, and NaN where the request asked for it."""
    if read_checksum(header, binding.layout):
        raise RequestError(Code.NOT_SUPPORTED, field="checksum", expected="0", got="a checksum")
    for copy in binding.copies:
        tensor = copy.tensor
        source = memoryview(header if copy.frame < 0 else frames[copy.frame])
        if copy.frame >= 0 and len(source) != tensor.nbytes:
            raise RequestError(Code.SIZE_MISMATCH, field=tensor.name, expected=f"{tensor.nbytes} bytes", got=len(source))
        content = source[copy.start : copy.start + copy.nbytes]
        if tensor.dtype == DType.BYTES:
            _check_bytes(tensor, content)
        elif (
            binding.layout.finite
            and tensor.dtype in _FLOATS
            and not np.isfinite(np.frombuffer(content, NUMPY_NAME[tensor.dtype])).all()
        ):
            raise RequestError(Code.NOT_FINITE, field=tensor.name, expected="finite values", got="NaN or Inf")


def _check_bytes(tensor: WireTensor, content: memoryview) -> None:
    count = int(np.prod(tensor.shape, dtype=object))
    try:
        _, used = unpack_bytes(content, count)
    except ValueError as error:
        raise RequestError(Code.BAD_TENSOR, field=tensor.name, message=str(error)) from None
    if used != len(content):
        raise RequestError(Code.SIZE_MISMATCH, field=tensor.name, expected=f"{used} bytes in {count} elements", got=len(content))
