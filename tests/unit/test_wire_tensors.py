"""A tensor's description is checked against itself and against the others before anything uses it."""

from __future__ import annotations

from typing import Any

import pytest
from headers import frame_tensor, make_request, make_tensor

from schemas.layout import read_layout
from schemas.status import Code, Place, RequestError
from schemas.tensors import DType
from schemas.wire import MAX_INLINE_BYTES
from schemas.wire_tensors import Lease, WireTensor


def read(*tensors: dict[str, Any]) -> tuple[WireTensor, ...]:
    """Return the tensors of a request with these tables."""
    return read_layout(make_request(inputs=list(tensors))).tensors


def refused(*tensors: dict[str, Any]) -> RequestError:
    """Return the error with which a request with these tables is refused."""
    with pytest.raises(RequestError) as caught:
        read(*tensors)
    return caught.value


def test_an_inline_tensor_says_where_its_bytes_are() -> None:
    """As a position in the header."""
    header = make_request()
    tensor = read_layout(header).tensors[0]

    assert header[tensor.inline_at : tensor.inline_at + tensor.nbytes] == bytes(range(80))
    assert (tensor.place, tensor.frame, tensor.lease) == (Place.INLINE, -1, None)


def test_a_frame_tensor_says_which_frame() -> None:
    """Frames may be named in any order."""
    assert [tensor.frame for tensor in read(frame_tensor("b", 1), frame_tensor("a", 0))] == [1, 0]


def test_a_leased_tensor_carries_its_lease() -> None:
    """By number and generation, never by a path."""
    lease = {"region": 1, "generation": 2, "frame": 3, "nbytes": 80}

    assert read(make_tensor(place=Place.LEASE, inline_data=None, lease=lease))[0].lease == Lease(1, 2, 3, 80)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": ""}, Code.BAD_NAME),
        ({"dtype": 0}, Code.BAD_DTYPE),
        ({"dtype": 16}, Code.BAD_DTYPE),
        ({"shape": [1] * 9}, Code.BAD_SHAPE),
        ({"shape": [-1, 20]}, Code.BAD_SHAPE),
        ({"shape": [1, 21]}, Code.SIZE_MISMATCH),
        ({"nbytes": 79}, Code.SIZE_MISMATCH),
        ({"inline_data": bytes(79)}, Code.SIZE_MISMATCH),
        ({"inline_data": None}, Code.SIZE_MISMATCH),
        ({"shape": [2**32, 2**32], "nbytes": 0}, Code.TOO_LARGE),
        ({"shape": [2**62, 4], "nbytes": 0}, Code.TOO_LARGE),
        ({"dtype": DType.ENCODED, "shape": [2]}, Code.BAD_SHAPE),
        ({"dtype": DType.ENCODED, "shape": [1], "nbytes": 2**63}, Code.TOO_LARGE),
        ({"dtype": DType.BYTES, "shape": [21]}, Code.SIZE_MISMATCH),
        ({"content_type": "image/png"}, Code.BAD_TENSOR),
        ({"place": Place.UNSET}, Code.BAD_TENSOR),
        ({"place": 4}, Code.BAD_TENSOR),
        ({"place": Place.FRAME}, Code.BAD_TENSOR),
        ({"place": Place.LEASE}, Code.BAD_TENSOR),
        ({"place": Place.LEASE, "inline_data": None}, Code.BAD_LEASE),
        ({"place": Place.LEASE, "inline_data": None, "lease": {"nbytes": 79}}, Code.BAD_LEASE),
        ({"place": Place.FRAME, "inline_data": None, "frame": 64}, Code.BAD_FRAMES),
        ({"place": Place.FRAME, "inline_data": None, "frame": 1}, Code.BAD_FRAMES),
    ],
)
def test_a_wrong_tensor_is_refused_with_a_code_of_its_own(changes: dict[str, Any], code: Code) -> None:
    """And the error names the tensor, or the vector when it has no name."""
    error = refused(make_tensor(**changes))

    assert error.code == code
    assert error.field in ("x", "inputs", "inputs[0]")


def test_inline_bytes_have_a_limit() -> None:
    """Up to it they are taken."""
    fits = make_tensor(dtype=DType.UINT8, shape=[MAX_INLINE_BYTES], nbytes=MAX_INLINE_BYTES, inline_data=bytes(MAX_INLINE_BYTES))
    size = MAX_INLINE_BYTES + 1

    assert read(fits)
    assert refused(make_tensor(dtype=DType.UINT8, shape=[size], nbytes=size, inline_data=bytes(size))).code == Code.TOO_LARGE


@pytest.mark.parametrize("shape", [[], [0], [3, 0, 5]])
def test_scalars_and_empty_tensors_are_tensors(shape: list[int]) -> None:
    """A product of no dimensions is 1, with a 0 among them 0."""
    nbytes = 4 if not shape else 0

    assert read(make_tensor(shape=shape, nbytes=nbytes, inline_data=bytes(nbytes)))[0].shape == tuple(shape)


def test_a_name_is_used_once() -> None:
    """Else one of two inputs would be lost."""
    assert refused(make_tensor(), make_tensor()).code == Code.BAD_NAME


@pytest.mark.parametrize("frames", [(0, 0), (0, 2), (1, 2)])
def test_each_frame_is_used_exactly_once(frames: tuple[int, int]) -> None:
    """No gap and no frame for two tensors."""
    assert refused(frame_tensor("a", frames[0]), frame_tensor("b", frames[1])).code == Code.BAD_FRAMES


def test_a_hostile_name_is_not_echoed_raw() -> None:
    """At most 64 printable characters of it."""
    error = refused(make_tensor(name="\x1b[2J" * 50, dtype=0))

    assert len(error.field) <= 64
    assert error.field.isprintable()
