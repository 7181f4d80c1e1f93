"""The verifier: proves that a header is a sound FlatBuffer of ``infer.fbs``, and returns its fields. One walk for all types,
driven by ``tables.py``; what the fields *mean* is checked in ``layout.py`` and ``messages.py``.

FlatBuffers for Python checks nothing: a string length of 2^31 silently returns the neighbouring bytes. Nothing here reads a
byte before its bounds and alignment are known, and the work is bounded by the size of the header, not by what it claims.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from schemas.status import Code, RequestError
from schemas.tables import MESSAGE, Field, Shape, Table, absent
from schemas.wire import IDENTIFIER, MAX_HEADER_BYTES, ROUTE

# Each table, string and vector costs its bytes and NODE_COST. In a header without sharing this is below 1.7 times its size (worst
# for a vector of tiny tables). Builders may let several fields point at one string, so twice the size is allowed; more only comes
# from a header made to burn time.
NODE_COST = 8
WORK_PER_BYTE = 2

_SMALLEST_HEADER = 12  # root offset, identifier, a table without fields
_read_u32 = struct.Struct("<I").unpack_from
_read_i32 = struct.Struct("<i").unpack_from
_read_2_u16 = struct.Struct("<HH").unpack_from

Values = list[Any]
Span = tuple[int, int]


class Verified(NamedTuple):
    """A sound header: the Message's field values by slot (see ``tables.Shape``), and the (start, end) of all free contents."""

    values: Values
    free: list[Span]


def verify(header: bytes) -> Verified:
    """Return the contents of *header* once every offset, vtable, string, vector and union of it is proven to be in bounds.

    Fields with ids above ours are ignored: a newer peer may send them.

    Raises:
        RequestError: TOO_LARGE, UNSUPPORTED_VERSION (another file identifier), or BAD_HEADER with the path of the field.
    """
    _check_frame(header)
    walk = _Walk(header)
    try:
        values = walk.table(walk.target(0), _MESSAGE)
        walk.check_free_is_private()
    except _MalformedError as error:
        raise RequestError(
            Code.BAD_HEADER, field=error.path or "header", message=f"{error.path or 'header'}: {error.reason}"
        ) from None
    return Verified(values, walk.free)


def find_route(header: bytes) -> int | None:
    """Return the position of the Route of a header that need not be sound elsewhere, None when even that cannot be read."""
    try:
        _check_frame(header)
        walk = _Walk(header)
        at = walk.target(0)
        offsets, table_bytes = walk.vtable(at, _MESSAGE)
    except (RequestError, _MalformedError):
        return None
    offset = offsets[0] if offsets else 0
    if offset < 4 or offset + ROUTE.size > table_bytes or (at + offset) & 7:
        return None
    return at + offset


def _check_frame(header: bytes) -> None:
    size = len(header)
    if size > MAX_HEADER_BYTES:
        raise RequestError(Code.TOO_LARGE, field="header", expected=f"at most {MAX_HEADER_BYTES} bytes", got=size)
    if size < _SMALLEST_HEADER:
        raise RequestError(Code.BAD_HEADER, field="header", expected=f"at least {_SMALLEST_HEADER} bytes", got=size)
    if header[4:8] != IDENTIFIER:
        raise RequestError(Code.UNSUPPORTED_VERSION, field="identifier", expected=IDENTIFIER.decode(), got=bytes(header[4:8]))


class _MalformedError(Exception):
    """What is wrong with the field at *path*; the path grows on the way up, so that a sound header pays nothing for it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = ""

    def inside(self, name: str) -> None:
        separator = "." if self.path and not self.path.startswith("[") else ""
        self.path = name + separator + self.path


class _Walk:
    """One pass over one header.

    Attributes:
        fixed: spans that decide the layout: vtables, offsets, lengths, names, shapes.
        free: spans of free contents.
    """

    __slots__ = ("fixed", "free", "header", "size", "work_left")

    def __init__(self, header: bytes) -> None:
        self.header = header
        self.size = len(header)
        self.work_left = len(header) * WORK_PER_BYTE
        self.fixed: list[Span] = [(0, 8)]
        self.free: list[Span] = []

    def target(self, where: int) -> int:
        """Return the position to which the offset at *where* points, proven to hold 4 bytes."""
        at: int = where + _read_u32(self.header, where)[0]
        if at == where or at & 3 or at + 4 > self.size:
            raise _MalformedError(f"offset at byte {where} points outside the header or is not aligned")
        return at

    def vtable(self, at: int, plan: _Plan) -> tuple[tuple[int, ...], int]:
        """Return the offsets of the fields that we know and the size of the table at *at*."""
        size = self.size
        vtable_at = at - _read_i32(self.header, at)[0]
        if vtable_at < 0 or vtable_at & 1 or vtable_at + 4 > size:
            raise _MalformedError(f"vtable of the table at byte {at} is outside the header or not aligned")
        vtable_bytes, table_bytes = _read_2_u16(self.header, vtable_at)
        if vtable_bytes < 4 or vtable_bytes & 1 or vtable_at + vtable_bytes > size:
            raise _MalformedError(f"vtable at byte {vtable_at} has a size of {vtable_bytes}")
        if table_bytes < 4 or at + table_bytes > size:
            raise _MalformedError(f"table at byte {at} has a size of {table_bytes}")
        self.work_left -= NODE_COST + table_bytes
        if self.work_left < 0:
            raise _MalformedError("too many shared parts")
        offsets_at = vtable_at + 4
        known = min((vtable_bytes - 4) >> 1, len(plan.steps))
        self.fixed.append((at, at + (4 if plan.has_free else table_bytes)))
        self.fixed.append((vtable_at, offsets_at + 2 * known))
        return plan.read_offsets[known](self.header, offsets_at), table_bytes

    def table(self, at: int, plan: _Plan) -> Values:
        """Return the values of the table at *at* by slot."""
        offsets, table_bytes = self.vtable(at, plan)
        header = self.header
        # A table without free fields is one fixed span; in the others each fixed field is.
        fixed = self.fixed if plan.has_free else None
        values = plan.absent.copy()
        step = plan.steps[0]
        try:
            for step, offset in zip(plan.steps, offsets, strict=False):
                if not offset:
                    continue
                where = at + offset
                if offset < 4 or offset + step.width > table_bytes or where & step.mask:
                    raise _MalformedError(f"field at byte {where} is outside its table or not aligned")
                if fixed is not None:
                    fixed.append((where, where + step.fixed_width))
                if step.read is not None:
                    values[step.slot] = step.read(self, where, step)
                elif step.plans:
                    values[step.slot] = self.union(where, step, values[step.slot - 1])
                else:
                    values[step.slot] = step.unpack(header, where)[0]
            for step in plan.needed:
                if values[step.slot] is None and (not step.plans or values[step.slot - 1]):
                    raise _MalformedError("required, but not there")
        except _MalformedError as error:
            error.inside(step.name)
            raise
        return values

    def union(self, where: int, step: _Step, tag: int) -> Values:
        if not 0 < tag < len(step.plans):
            raise _MalformedError(f"a value with the unknown type {tag}")
        plan = step.plans[tag]
        assert plan is not None
        return self.table(self.target(where), plan)

    def position(self, where: int, step: _Step) -> int:
        self.free.append((where, where + step.width))
        return where

    def contents(self, where: int, step: _Step) -> Span:
        """Return (position, element count) of the vector or string to which the offset at *where* points."""
        at = self.target(where)
        count: int = _read_u32(self.header, at)[0]
        start = at + 4
        used = count * step.item_bytes
        if start + used + step.terminated > self.size or (count and start & step.item_mask):
            raise _MalformedError(f"{count} elements at byte {start} are outside the header or not aligned")
        if step.terminated and self.header[start + used]:
            raise _MalformedError("string without a zero byte at its end")
        if step.limit and count > step.limit:
            raise _MalformedError(f"at most {step.limit} elements, got {count}")
        self.work_left -= NODE_COST + used
        if self.work_left < 0:
            raise _MalformedError("too many shared parts")
        end = start + used
        if step.free:
            self.free.append((start, end))
            self.fixed.append((at, start))
            self.fixed.append((end, end + step.terminated))
        else:
            self.fixed.append((at, end + step.terminated))
        return start, count

    def string(self, where: int, step: _Step) -> str:
        start, count = self.contents(where, step)
        try:
            return self.header[start : start + count].decode()
        except UnicodeDecodeError:
            raise _MalformedError("not UTF-8") from None

    def numbers(self, where: int, step: _Step) -> tuple[int, ...]:
        start, count = self.contents(where, step)
        return step.unpack_many[count](self.header, start)

    def child(self, where: int, step: _Step) -> Values:
        return self.table(self.target(where), step.child)

    def children(self, where: int, step: _Step) -> list[Any]:
        """Return the tables or strings of a vector of offsets."""
        start, count = self.contents(where, step)
        read, inner = step.element, step.inner
        parts: list[Any] = []
        try:
            for at in range(start, start + 4 * count, 4):
                parts.append(read(self, at, inner))
        except _MalformedError as error:
            error.inside(f"[{len(parts)}]")
            raise
        return parts

    def check_free_is_private(self) -> None:
        """Refuse a header in which free bytes are also part of its structure: they could then change the layout unseen."""
        painted = bytearray(self.size)
        for start, end in self.free:
            painted[start:end] = b"\1" * (end - start)
        find = painted.find
        for start, end in self.fixed:
            if find(1, start, end) >= 0:
                raise _MalformedError(f"parts overlap at byte {start}")


Reader = Callable[[_Walk, int, "_Step"], Any]

_READERS: dict[Shape, Reader] = {
    Shape.STRUCT: _Walk.position,
    Shape.STRING: _Walk.string,
    Shape.BYTES: _Walk.contents,
    Shape.NUMBERS: _Walk.numbers,
    Shape.STRUCTS: _Walk.contents,
    Shape.STRINGS: _Walk.children,
    Shape.TABLE: _Walk.child,
    Shape.TABLES: _Walk.children,
}


class _Step:
    """A field as the walk uses it: everything that can be worked out at import is an attribute."""

    __slots__ = (
        "child", "element", "fixed_width", "free", "inner", "item_bytes", "item_mask", "limit", "mask", "name", "plans",
        "read", "slot", "terminated", "unpack", "unpack_many", "width",
    )  # fmt: skip

    def __init__(self, field: Field) -> None:
        self.slot, self.name, self.width, self.free = field.slot, field.name, field.width, field.free
        self.limit, self.terminated = field.limit, field.terminated
        in_table = field.shape in (Shape.SCALAR, Shape.STRUCT)
        self.fixed_width = 0 if in_table and field.free else field.width
        self.mask = (field.align if in_table else 4) - 1
        self.item_bytes, self.item_mask = field.item_bytes, field.align - 1
        self.unpack = struct.Struct("<" + field.code).unpack_from
        counts = range(field.limit + 1 if field.shape is Shape.NUMBERS else 0)
        self.unpack_many = [struct.Struct(f"<{count}{field.code}").unpack_from for count in counts]
        free_scalar = field.shape is Shape.SCALAR and field.free
        self.read = _Walk.position if free_scalar else _READERS.get(field.shape)
        self.child: Any = field.table and _Plan(field.table)
        self.element = _Walk.string if field.shape is Shape.STRINGS else _Walk.child
        self.inner: _Step = _Step(_ELEMENT) if field.shape is Shape.STRINGS else self
        self.plans = [_Plan(member) if member else None for member in field.members]


class _Plan:
    """A table as the walk uses it."""

    __slots__ = ("absent", "has_free", "needed", "read_offsets", "steps")

    def __init__(self, table: Table) -> None:
        self.steps = [_Step(field) for field in table.fields]
        self.read_offsets = [struct.Struct(f"<{count}H").unpack_from for count in range(len(self.steps) + 1)]
        self.has_free = any(step.fixed_width == 0 for step in self.steps)
        self.absent: Values = [absent(field) for field in table.fields]
        self.needed = [step for step, field in zip(self.steps, table.fields, strict=True) if field.required or field.members]


_ELEMENT = Field(0, "", Shape.STRING, terminated=True)
_MESSAGE = _Plan(MESSAGE)
