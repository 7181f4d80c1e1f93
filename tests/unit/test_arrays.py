"""Arrays as tensors: what is described and sent for each kind of value, and what comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schemas.arguments import check_mapping
from schemas.arrays import Encoded, describe, lent_or_copied, read_outputs
from schemas.status import Code, Place, RequestError
from schemas.tensors import DType, pack_bytes
from schemas.wire_tensors import WireTensor


def sent(value: Any) -> tuple[DType, tuple[int, ...], bytes]:
    """Return datatype, shape and bytes that are sent for *value*."""
    (dtype, shape, nbytes, _), source = describe(value, "x")
    content = bytes(lent_or_copied(source, lend=False))
    assert len(content) == nbytes
    return dtype, shape, content


def read_back(value: Any) -> np.ndarray[Any, Any]:
    """Return what a client reads when a server echoes *value*."""
    dtype, shape, content = sent(value)
    tensor = WireTensor("x", dtype, shape, Place.FRAME, len(content), frame=0)
    return read_outputs([tensor], b"", [content])["x"]


@pytest.mark.parametrize("dtype", ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"])
def test_each_datatype_comes_back_as_it_went(dtype: str) -> None:
    """Bits, shape and datatype."""
    array = np.arange(6).reshape(2, 3).astype(dtype)

    echoed = read_back(array)

    assert echoed.dtype == array.dtype
    assert np.array_equal(echoed, array)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
        np.arange(12, dtype=np.float32)[::-2],
        np.arange(12, dtype=">f4").reshape(3, 4),
        np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
    ],
)
def test_any_order_is_sent_little_endian_in_c_order(array: np.ndarray[Any, Any]) -> None:
    """What arrives are the same numbers."""
    assert sent(array) == (DType.FP32, array.shape, array.astype("<f4").tobytes("C"))


def test_a_scalar_has_no_dimensions() -> None:
    """Its shape is (), also on the way back."""
    assert sent(np.float32(2.5)) == (DType.FP32, (), np.float32(2.5).tobytes())
    assert read_back(np.float32(2.5)).shape == ()


def test_an_empty_array_comes_back_empty() -> None:
    """With its shape."""
    assert read_back(np.empty((0, 3), np.float32)).shape == (0, 3)


@pytest.mark.parametrize("value", [np.array([b"a", b"bc\0"], object), [b"a", b"bc\0"]])
def test_bytes_objects_travel_in_the_protocols_form(value: Any) -> None:
    """Each with its length; they come back as an array of bytes objects."""
    if isinstance(value, np.ndarray):
        assert sent(value) == (DType.BYTES, (2,), pack_bytes([b"a", b"bc\0"]))
        assert read_back(value).tolist() == [b"a", b"bc\0"]
    else:
        assert sent(value)[0] == DType.BYTES


def test_an_encoded_picture_is_one_blob_with_its_type() -> None:
    """Whatever its size, the shape is (1,)."""
    described, source = describe(Encoded(bytearray(b"\x89PNG"), "image/png"), "x")

    assert (described, source) == ((DType.ENCODED, (1,), 4, "image/png"), b"\x89PNG")


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([1 + 2j]), np.array(["2020-01-01"], "M8[D]")])
def test_what_the_wire_does_not_know_is_refused(value: np.ndarray[Any, Any]) -> None:
    """The error names the tensor and the datatype."""
    with pytest.raises(RequestError, match="x: expected bool, numbers, bytes or Encoded, got") as raised:
        describe(value, "x")
    assert raised.value.code == Code.BAD_DTYPE


@pytest.mark.parametrize("value", ["part.png", Path("part.png")])
def test_a_files_name_is_refused_with_the_cure(value: Any) -> None:
    """Files are not read for the caller."""
    cure = r"got \w+; wrap a file: Encoded\(path.read_bytes\(\)\); send a text as \[text.encode\(\)\]"
    with pytest.raises(RequestError, match=f"image: expected an array, bytes or Encoded, {cure}") as raised:
        describe(value, "image")
    assert raised.value.code == Code.BAD_DTYPE


@pytest.mark.parametrize("content", ["part.png", Path("part.png"), 5])
def test_only_bytes_can_be_encoded(content: Any) -> None:
    """A name is none, and a number would be taken for a size."""
    with pytest.raises(TypeError, match=r"Encoded: expected the bytes of a file, got \w+: Encoded\(path.read_bytes\(\)\)"):
        Encoded(content)


@pytest.mark.parametrize("inputs", [np.zeros(3), [("x", 1)], "x", None])
def test_inputs_without_names_are_the_programs_mistake(inputs: object) -> None:
    """The error shows what a mapping looks like."""
    with pytest.raises(TypeError, match=r"inputs: expected a mapping from name to value, such as .*, got"):
        check_mapping(inputs)


def test_text_among_bytes_is_refused() -> None:
    """The error names the element."""
    with pytest.raises(RequestError, match=r"x\[1\]: expected bytes in an array of objects, got str"):
        describe(np.array([b"a", "b"], object), "x")


def test_a_lent_array_is_not_copied() -> None:
    """Its own memory is sent."""
    array = np.zeros((2, 3), np.float32)
    view = lent_or_copied(array, lend=True)
    array[0, 0] = 1

    assert bytes(view) == array.tobytes()


def test_an_array_in_another_order_is_copied_even_when_lent() -> None:
    """The wire knows only C order."""
    assert isinstance(lent_or_copied(np.zeros((2, 3)).T, lend=True), bytes)


def test_outputs_are_read_only() -> None:
    """They are views of the reply."""
    with pytest.raises(ValueError, match="read-only"):
        read_back(np.zeros(3))[0] = 1


def test_bytes_that_end_inside_an_element_are_refused() -> None:
    """Nothing is read beyond the tensor."""
    tensor = WireTensor("x", DType.BYTES, (2,), Place.FRAME, 9, frame=0)

    with pytest.raises(RequestError, match="x: BYTES element 1"):
        read_outputs([tensor], b"", [pack_bytes([b"a"]) + bytes(4)[:0] + b"\5\0\0\0"])
