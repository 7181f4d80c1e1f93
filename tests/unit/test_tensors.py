"""Each datatype at each rank: the bytes that a Python client sends and reads are those of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensor_table import EMPTY_SHAPES, GOLDEN, SHAPES, as_input, golden_array, golden_bytes, same

from schemas.arrays import Bfloat16, describe, lent_or_copied, read_outputs
from schemas.inputs import check_content
from schemas.layout import read_layout
from schemas.status import Code, Place, RequestError
from schemas.templates import RequestTemplate, TensorForm
from schemas.tensors import ITEM_BYTES, MAX_BYTES_ELEMENTS, MAX_RANK, DType
from schemas.wire_tensors import WireTensor

DTYPES = tuple(GOLDEN)
FLOATS = {
    DType.FP16: ("007c", "00fc", "017c", "ff7f"),
    DType.FP32: ("0000807f", "000080ff", "0100807f", "ffffffff"),
    DType.FP64: ("000000000000f07f", "000000000000f0ff", "010000000000f07f", "ffffffffffffffff"),
    DType.BF16: ("807f", "80ff", "817f", "ffff"),
}


def every_case() -> list[tuple[DType, tuple[int, ...]]]:
    """Return each datatype with each shape."""
    return [(dtype, shape) for dtype in DTYPES for shape in (*SHAPES, *EMPTY_SHAPES)]


def test_the_table_has_every_datatype_and_rank() -> None:
    """ENCODED has no values: it is one blob."""
    assert set(DTYPES) == set(DType) - {DType.UNSET, DType.ENCODED}
    assert [len(shape) for shape in SHAPES] == list(range(MAX_RANK + 1))


@pytest.mark.parametrize(("dtype", "shape"), every_case())
def test_a_tensor_is_sent_as_the_table_says(dtype: DType, shape: tuple[int, ...]) -> None:
    """Datatype, shape, size and bytes, lent or copied."""
    described, source = describe(as_input(dtype, golden_array(dtype, shape)), "x")

    assert described == (dtype, shape, len(golden_bytes(dtype, shape)), "")
    assert bytes(lent_or_copied(source, lend=False)) == bytes(lent_or_copied(source, lend=True)) == golden_bytes(dtype, shape)


@pytest.mark.parametrize(("dtype", "shape"), every_case())
def test_a_tensor_is_read_as_the_table_says(dtype: DType, shape: tuple[int, ...]) -> None:
    """From a frame, and inline behind other bytes."""
    content = golden_bytes(dtype, shape)
    frame = WireTensor("x", dtype, shape, Place.FRAME, len(content), frame=0)
    inline = WireTensor("x", dtype, shape, Place.INLINE, len(content), inline_at=3)

    assert same(read_outputs([frame], b"", [content])["x"], golden_array(dtype, shape))
    assert same(read_outputs([inline], b"123" + content, [])["x"], golden_array(dtype, shape))


@pytest.mark.parametrize(("dtype", "shape"), every_case())
def test_a_header_can_say_each_tensor(dtype: DType, shape: tuple[int, ...]) -> None:
    """Verified and read back: datatype, shape, size."""
    size = len(golden_bytes(dtype, shape))
    layout = read_layout(RequestTemplate("m", [TensorForm("x", dtype, shape, size, True)]).header(1, 0, [bytes(size)]))

    assert [(tensor.dtype, tensor.shape, tensor.nbytes) for tensor in layout.tensors] == [(dtype, shape, size)]


@pytest.mark.parametrize("dtype", ITEM_BYTES)
@pytest.mark.parametrize("change", [-1, 1])
def test_a_size_that_does_not_fit_the_shape_is_refused(dtype: DType, change: int) -> None:
    """One byte more or less, at every datatype of fixed size."""
    with pytest.raises(RequestError) as caught:
        RequestTemplate("m", [TensorForm("x", dtype, (2, 3), 6 * ITEM_BYTES[dtype] + change, True)])

    assert caught.value.code is Code.SIZE_MISMATCH


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_infinity_are_found_in_each_float(dtype: DType) -> None:
    """Both infinities, a signalling and a negative quiet NaN, at the end of the tensor; the table's own values are finite."""
    sound = golden_bytes(dtype, (6,))
    check_content(WireTensor("x", dtype, (6,), Place.FRAME, len(sound), frame=0), memoryview(sound), finite=True)
    for bits in FLOATS[dtype]:
        content = sound[: -len(bits) // 2] + bytes.fromhex(bits)
        tensor = WireTensor("x", dtype, (6,), Place.FRAME, len(content), frame=0)

        with pytest.raises(RequestError) as caught:
            check_content(tensor, memoryview(content), finite=True)
        assert (caught.value.code, caught.value.field) == (Code.NOT_FINITE, "x")
        check_content(tensor, memoryview(content), finite=False)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype not in FLOATS])
def test_other_datatypes_are_always_finite(dtype: DType) -> None:
    """Whatever their bits would mean in a float."""
    content = golden_bytes(dtype, (6,)) if dtype is DType.BYTES else b"\xff" * 6 * ITEM_BYTES[dtype]

    check_content(WireTensor("x", dtype, (6,), Place.FRAME, len(content), frame=0), memoryview(content), finite=True)


@pytest.mark.parametrize(
    ("content", "count", "code"),
    [
        ("01000000 61 00", 1, Code.SIZE_MISMATCH),
        ("01000000 61", 2, Code.BAD_TENSOR),
        ("02000000 61", 1, Code.BAD_TENSOR),
        ("ffffffff", 1, Code.BAD_TENSOR),
        ("010000", 1, Code.BAD_TENSOR),
        ("00", 0, Code.SIZE_MISMATCH),
        ("00000000" * (MAX_BYTES_ELEMENTS + 1), MAX_BYTES_ELEMENTS + 1, Code.TOO_LARGE),
    ],
)
def test_bytes_in_another_form_are_refused(content: str, count: int, code: Code) -> None:
    """Left over, missing, cut off, beyond the end, more elements than the broker has time for."""
    packed = bytes.fromhex(content)

    with pytest.raises(RequestError) as caught:
        check_content(WireTensor("x", DType.BYTES, (count,), Place.FRAME, len(packed), frame=0), memoryview(packed), finite=False)

    assert caught.value.code is code


@pytest.mark.parametrize("value", [b"ab\0", [b"ab\0", b"\0"], [[b"\0\0"], [b""]], (b"", b"c\0")])
def test_bytes_in_lists_keep_their_zeros(value: Any) -> None:
    """numpy by itself cuts them off the end."""
    (dtype, shape, nbytes, _), source = describe(value, "x")
    content = bytes(lent_or_copied(source, lend=False))

    read = read_outputs([WireTensor("x", dtype, shape, Place.FRAME, nbytes, frame=0)], b"", [content])["x"]

    assert (dtype, shape) == (DType.BYTES, np.array(value, object).shape)
    assert read.tolist() == np.array(value, object).tolist()


def test_bits_of_another_size_are_no_bf16() -> None:
    """The error says what they must be."""
    with pytest.raises(RequestError, match="uint16 bits of BF16") as caught:
        describe(Bfloat16(np.zeros(3, np.float32)), "x")  # type: ignore[arg-type]

    assert caught.value.code is Code.BAD_DTYPE
