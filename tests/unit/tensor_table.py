"""What each datatype is on the wire, and at each rank: values, golden bytes, shapes. The tests of every layer read this table."""

from __future__ import annotations

from typing import Any

import numpy as np

from schemas.arrays import Bfloat16
from schemas.tensors import DType

# Six elements each; the bytes were written down by hand from the formats' definitions, not made by the code under test.
GOLDEN: dict[DType, tuple[list[Any], str]] = {
    DType.BOOL: ([True, False, True, True, False, False], "01 00 01 01 00 00"),
    DType.UINT8: ([0, 1, 127, 128, 254, 255], "00 01 7f 80 fe ff"),
    DType.UINT16: ([0, 1, 255, 256, 32768, 65535], "0000 0100 ff00 0001 0080 ffff"),
    DType.UINT32: ([0, 1, 256, 65536, 2**31, 2**32 - 1], "00000000 01000000 00010000 00000100 00000080 ffffffff"),
    DType.UINT64: (
        [0, 1, 256, 2**32, 2**63, 2**64 - 1],
        "0000000000000000 0100000000000000 0001000000000000 0000000001000000 0000000000000080 ffffffffffffffff",
    ),
    DType.INT8: ([0, 1, 127, -128, -2, -1], "00 01 7f 80 fe ff"),
    DType.INT16: ([0, 1, 256, 32767, -32768, -1], "0000 0100 0001 ff7f 0080 ffff"),
    DType.INT32: ([0, 1, 256, 2**31 - 1, -(2**31), -2], "00000000 01000000 00010000 ffffff7f 00000080 feffffff"),
    DType.INT64: (
        [0, 1, 2**32, 2**63 - 1, -(2**63), -1],
        "0000000000000000 0100000000000000 0000000001000000 ffffffffffffff7f 0000000000000080 ffffffffffffffff",
    ),
    DType.FP16: ([0.0, 1.0, -2.0, 65504.0, 2**-24, -0.0], "0000 003c 00c0 ff7b 0100 0080"),
    DType.FP32: ([0.0, 1.0, -2.0, 0.5, 2**-149, -0.0], "00000000 0000803f 000000c0 0000003f 01000000 00000080"),
    DType.FP64: (
        [0.0, 1.0, -2.0, 0.5, 2**-1074, -0.0],
        "0000000000000000 000000000000f03f 00000000000000c0 000000000000e03f 0100000000000000 0000000000000080",
    ),
    # As bits: 1.0, -2.0, 3.140625, the largest, -0.0 ...
    DType.BF16: ([0x0000, 0x3F80, 0xC000, 0x4049, 0x7F7F, 0x8000], "0000 803f 00c0 4940 7f7f 0080"),
    DType.BYTES: (
        [b"", b"a", b"bc\0", b"\0\0", b"\xff" * 5, b""],
        "00000000 01000000 61 03000000 626300 02000000 0000 05000000 ffffffffff 00000000",
    ),
}
# A shape of six elements at each rank, but for the scalar, which is the second element of the table.
SHAPES: tuple[tuple[int, ...], ...] = (
    (), (6,), (2, 3), (1, 2, 3), (2, 1, 1, 3), (1, 2, 1, 3, 1), (1, 1, 2, 1, 3, 1), (1, 2, 1, 1, 1, 3, 1),
    (1, 1, 2, 1, 1, 3, 1, 1),
)  # fmt: skip
# The second element alone.
SCALARS: dict[DType, str] = {
    DType.BOOL: "00", DType.UINT8: "01", DType.UINT16: "0100", DType.UINT32: "01000000", DType.UINT64: "0100000000000000",
    DType.INT8: "01", DType.INT16: "0100", DType.INT32: "01000000", DType.INT64: "0100000000000000", DType.FP16: "003c",
    DType.FP32: "0000803f", DType.FP64: "000000000000f03f", DType.BF16: "803f", DType.BYTES: "01000000 61",
}  # fmt: skip
EMPTY_SHAPES: tuple[tuple[int, ...], ...] = ((0,), (0, 3), (2, 0), (2, 0, 3), (0, 1, 1, 1, 1, 1, 1, 5))
NUMPY: dict[DType, Any] = {
    DType.BOOL: np.bool_, DType.UINT8: np.uint8, DType.UINT16: np.uint16, DType.UINT32: np.uint32, DType.UINT64: np.uint64,
    DType.INT8: np.int8, DType.INT16: np.int16, DType.INT32: np.int32, DType.INT64: np.int64, DType.FP16: np.float16,
    DType.FP32: np.float32, DType.FP64: np.float64, DType.BF16: np.uint16, DType.BYTES: object,
}  # fmt: skip


def golden_bytes(dtype: DType, shape: tuple[int, ...]) -> bytes:
    """Return the bytes of the table's tensor of this datatype and shape."""
    if 0 in shape:
        return b""
    return bytes.fromhex(GOLDEN[dtype][1] if shape else SCALARS[dtype])


def golden_array(dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the same tensor as a Python client reads it."""
    values = [] if 0 in shape else GOLDEN[dtype][0] if shape else GOLDEN[dtype][0][1:2]
    flat = np.empty(len(values), NUMPY[dtype])
    flat[:] = values
    return flat.reshape(shape)


def as_input(dtype: DType, array: np.ndarray[Any, Any]) -> Any:
    """Return *array* as a Python client must be given it."""
    return Bfloat16(array) if dtype is DType.BF16 else array


def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """True when datatype, shape and every bit are the same."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()
