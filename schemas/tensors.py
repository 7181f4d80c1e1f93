"""Tensor datatypes, shapes and sizes: what a tensor may be. No wire layout (``wire.py``), no shared memory (``arena.py``)."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

MAX_RANK = 8
# Python integers do not wrap as numpy's do ((2**32, 2**32) has product 0 there); anything above this is refused before any use.
MAX_TENSOR_BYTES = 1 << 40
# The broker walks over them one by one, 0.15 us each: 10 ms is the longest that one tensor may hold it up.
MAX_BYTES_ELEMENTS = 65_536


class DType(IntEnum):
    """Datatypes of the Open Inference Protocol v2, plus BF16 and ENCODED (one JPEG, PNG or text blob, shape [1])."""

    UNSET = 0
    BOOL = 1
    UINT8 = 2
    UINT16 = 3
    UINT32 = 4
    UINT64 = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FP16 = 10
    FP32 = 11
    FP64 = 12
    BYTES = 13
    BF16 = 14
    ENCODED = 15


# Bytes of one element; BYTES and ENCODED have no fixed size.
ITEM_BYTES: dict[DType, int] = {
    DType.BOOL: 1, DType.UINT8: 1, DType.UINT16: 2, DType.UINT32: 4, DType.UINT64: 8, DType.INT8: 1, DType.INT16: 2,
    DType.INT32: 4, DType.INT64: 8, DType.FP16: 2, DType.FP32: 4, DType.FP64: 8, DType.BF16: 2,
}  # fmt: skip

# numpy's name of each datatype, little-endian. BF16 has none: its bits travel as uint16. BYTES and ENCODED are raw uint8.
NUMPY_NAME: dict[DType, str] = {
    DType.BOOL: "|b1", DType.UINT8: "|u1", DType.UINT16: "<u2", DType.UINT32: "<u4", DType.UINT64: "<u8", DType.INT8: "|i1",
    DType.INT16: "<i2", DType.INT32: "<i4", DType.INT64: "<i8", DType.FP16: "<f2", DType.FP32: "<f4", DType.FP64: "<f8",
    DType.BF16: "<u2", DType.BYTES: "|u1", DType.ENCODED: "|u1",
}  # fmt: skip

# Length of a BYTES element, in front of it.
_ELEMENT_BYTES = struct.Struct("<I").unpack_from


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a lane takes or gives under one name; -1 in *shape* is any size. The first dimension is the rows."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


def element_count(shape: Sequence[int]) -> int:
    """Return the product of *shape* as a Python integer; 1 for a scalar."""
    count = 1
    for dim in shape:
        count *= dim
    return count


def pack_bytes(elements: Iterable[bytes]) -> bytes:
    """Return *elements* in the protocol's binary form: each a little-endian u32 length and its bytes."""
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def packed_size(packed: bytes | memoryview, count: int) -> int:
    """Return how many bytes *count* elements of the binary form take, without looking at their contents.

    Raises:
        ValueError: *packed* ends inside an element.
    """
    at = 0
    with contextlib.suppress(struct.error):
        for _ in range(count):
            at += 4 + _ELEMENT_BYTES(packed, at)[0]
        if at <= len(packed):
            return at
    # The slow way says which element it is.
    return unpack_bytes(packed, count)[1]


def unpack_bytes(packed: bytes | memoryview, count: int) -> tuple[list[bytes], int]:
    """Return *count* elements read from the binary form, and how many bytes they took.

    Raises:
        ValueError: *packed* ends inside an element.
    """
    elements: list[bytes] = []
    at = 0
    for index in range(count):
        if at + 4 > len(packed):
            raise ValueError(f"BYTES element {index}: length cut off at byte {at} of {len(packed)}")
        (size,) = _ELEMENT_BYTES(packed, at)
        if at + 4 + size > len(packed):
            raise ValueError(f"BYTES element {index}: {size} bytes at {at + 4}, only {len(packed)} there")
        elements.append(bytes(packed[at + 4 : at + 4 + size]))
        at += 4 + size
    return elements, at
