"""numpy arrays to tensors of the wire, and back. No header layout here, no message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arguments import wrong_kind
from .status import Code, Place, RequestError, printable
from .tensors import ITEM_BYTES, NUMPY_NAME, DType, element_count, pack_bytes, unpack_bytes
from .wire_tensors import Lease, WireTensor

# BF16 has no datatype in numpy: its bits arrive as uint16, and a uint16 array that is sent means UINT16.
_DTYPES: dict[np.dtype[Any], DType] = {np.dtype(NUMPY_NAME[dtype]): dtype for dtype in ITEM_BYTES if dtype != DType.BF16}
# Built once: np.dtype(text) costs as much as the array.
_NUMPY: dict[DType, np.dtype[Any]] = {dtype: np.dtype(name) for dtype, name in NUMPY_NAME.items()}

# All that a header says of a tensor besides its name and place: (dtype, shape, nbytes, content_type).
Described = tuple[DType, tuple[int, ...], int, str]
Source = bytes | NDArray[Any]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One encoded blob as an input: the bytes of a picture's file, or a text.

    Args:
        content: copied when the request is made, unless it is bytes.
        content_type: such as "image/png" or "image/jpeg"; "" when the server is to see for itself.

    Raises:
        TypeError: *content* is a name, a path or anything else without bytes of its own.
    """

    content: bytes | bytearray | memoryview
    content_type: str = ""

    def __post_init__(self) -> None:
        """Refuse what bytes() would refuse later, or take for a size."""
        if not isinstance(self.content_type, str):
            raise wrong_kind("Encoded: content_type", 'a text such as "image/png"', self.content_type)
        try:
            memoryview(self.content)
        except TypeError:
            got = type(self.content).__name__
            raise TypeError(f"Encoded: expected the bytes of a file, got {got}: Encoded(path.read_bytes())") from None


@dataclass(frozen=True, slots=True)
class Bfloat16:
    """A BF16 tensor as an input, which numpy has no datatype for; as an output its bits come as uint16.

    Args:
        bits: uint16, the upper halves of FP32 values: ``(x.view(np.uint32) >> 16).astype(np.uint16)`` cuts an FP32 array x.
    """

    bits: NDArray[np.uint16]


def describe(value: Any, field: str) -> tuple[Described, Source]:
    """Return what the wire says of *value*, and what holds its bytes.

    Args:
        value: an array of numbers or bools, of any strides and byte order; an array or list of bytes objects (BYTES); an
            Encoded or Bfloat16; or what numpy makes one of the first two of.
        field: its name, for errors.

    Raises:
        RequestError: BAD_DTYPE when the wire has no such datatype, or the array is masked; BAD_SHAPE for what is no array.
    """
    if type(value) is np.ndarray:
        dtype = _DTYPES.get(value.dtype)
        if dtype is not None:
            return (dtype, value.shape, value.nbytes, ""), value
    return _describe_rare(value, field)


def _describe_rare(value: Any, field: str) -> tuple[Described, Source]:
    """Describe what is no array that can be sent as it lies."""
    if isinstance(value, Encoded):
        content = bytes(value.content)
        return (DType.ENCODED, (1,), len(content), value.content_type), content
    if isinstance(value, Bfloat16):
        (found, shape, nbytes, _), source = _describe_rare(value.bits, field)
        if found != DType.UINT16:
            raise RequestError(Code.BAD_DTYPE, field=field, expected="uint16 bits of BF16", got=found.name)
        return (DType.BF16, shape, nbytes, ""), source
    if isinstance(value, str | Path):
        wrong = f"expected an array, bytes or Encoded, got {type(value).__name__}"
        cure = "wrap a file: Encoded(path.read_bytes()); send a text as [text.encode()]"
        raise RequestError(Code.BAD_DTYPE, field=field, message=f"{printable(field)}: {wrong}; {cure}")
    if _is_masked(value):
        # Sent as it lies, what is masked would be a number like any other.
        wrong = f"{printable(field)}: expected an array, got a masked one"
        raise RequestError(Code.BAD_DTYPE, field=field, message=f"{wrong}; say what stands for the masked: array.filled(value)")
    try:
        # Left to itself, numpy cuts zero bytes off the end of bytes objects.
        array = np.array(value, object) if _holds_bytes(value) else np.asarray(value)
    except MemoryError:
        raise
    # What is to be an array makes itself one, and may raise anything: a tensor on a GPU raises TypeError.
    except Exception as error:
        got = f"{type(value).__name__}: {error}"
        raise RequestError(Code.BAD_SHAPE, field=field, expected="an array", got=got) from None
    if array.dtype.kind in "OS":
        return _describe_bytes(array, field)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    dtype = _DTYPES.get(little.dtype)
    if dtype is None:
        raise RequestError(Code.BAD_DTYPE, field=field, expected="bool, numbers, bytes or Encoded", got=array.dtype)
    return (dtype, little.shape, little.nbytes, ""), little


def _is_masked(value: Any) -> bool:
    """True for a masked array, and for a list of such."""
    return isinstance(value, np.ma.MaskedArray) or (isinstance(value, list | tuple) and any(map(_is_masked, value)))


def _holds_bytes(value: Any) -> bool:
    """True for a bytes object, and for a list that has one in its first place."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, bytes)


def _describe_bytes(array: NDArray[Any], field: str) -> tuple[Described, Source]:
    elements = array.reshape(-1).tolist()
    for index, element in enumerate(elements):
        if not isinstance(element, bytes):
            at = f"{printable(field)}[{index}]"
            raise RequestError(Code.BAD_DTYPE, field=at, expected="bytes in an array of objects", got=type(element).__name__)
    packed = pack_bytes(elements)
    return (DType.BYTES, array.shape, len(packed), ""), packed


def lent_or_copied(source: Source, *, lend: bool) -> bytes | memoryview:
    """Return the bytes of *source* in C order: its own memory where *lend* allows it and the order fits, else a copy."""
    if isinstance(source, bytes):
        return source
    if lend and source.flags.c_contiguous:
        return source.reshape(-1).view(np.uint8).data
    return source.tobytes()


def read_outputs(
    tensors: Sequence[WireTensor],
    header: bytes,
    frames: Sequence[bytes | memoryview],
    leases: Callable[[Lease], memoryview] | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the outputs of one reply by name: views of *header* and *frames*, arrays of bytes objects for BYTES.

    Args:
        tensors: of the verified layout of *header*; *frames* are as many as it uses.
        leases: returns the bytes of an output that is in a lease, or raises RequestError; None where there are none.

    Raises:
        RequestError: SIZE_MISMATCH, BAD_TENSOR, BAD_LEASE, or NOT_SUPPORTED for a lease where there is none.
    """
    outputs: dict[str, NDArray[Any]] = {}
    for name, dtype, shape, place, nbytes, frame, inline_at, _, lease in tensors:
        buffer: bytes | memoryview = header
        if place == Place.FRAME:
            buffer, inline_at = frames[frame], 0
            if len(buffer) != nbytes:
                raise RequestError(Code.SIZE_MISMATCH, field=printable(name), expected=f"{nbytes} bytes", got=len(buffer))
        elif lease is not None:
            if leases is None:
                raise RequestError(Code.NOT_SUPPORTED, field=printable(name), expected="a frame or inline bytes", got="a lease")
            buffer, inline_at = leases(lease), 0
        if dtype == DType.BYTES:
            outputs[name] = read_bytes_tensor(name, shape, memoryview(buffer)[inline_at : inline_at + nbytes])
        elif dtype == DType.ENCODED:
            outputs[name] = np.ndarray((nbytes,), _NUMPY[dtype], buffer, inline_at)
        else:
            outputs[name] = np.ndarray(shape, _NUMPY[dtype], buffer, inline_at)
    return outputs


def read_bytes_tensor(name: str, shape: tuple[int, ...], packed: memoryview) -> NDArray[Any]:
    """Return an array of bytes objects from the binary form.

    Raises:
        RequestError: BAD_TENSOR or SIZE_MISMATCH.
    """
    count = element_count(shape)
    try:
        elements, used = unpack_bytes(packed, count)
    except ValueError as error:
        raise RequestError(Code.BAD_TENSOR, field=printable(name), message=f"{printable(name)}: {error}") from None
    if used != len(packed):
        raise RequestError(Code.SIZE_MISMATCH, field=printable(name), expected=f"{used} bytes", got=len(packed))
    array = np.empty(count, object)
    array[:] = elements
    return array.reshape(shape)
