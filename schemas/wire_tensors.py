"""Tensors as a header describes them: what one is, and the checks that need nothing but the header."""

from __future__ import annotations

from typing import Any, NamedTuple

from schemas.status import Code, Place, RequestError, printable
from schemas.tensors import ITEM_BYTES, MAX_RANK, MAX_TENSOR_BYTES, DType, element_count
from schemas.wire import MAX_FRAMES, MAX_INLINE_BYTES

_ELEMENT_HEAD_BYTES = 4  # each element of a BYTES tensor begins with its length, u32


class Lease(NamedTuple):
    """A frame of a leased shared-memory region."""

    region: int
    generation: int
    frame: int
    nbytes: int


class WireTensor(NamedTuple):
    """One tensor of a verified header.

    Attributes:
        frame: index among the payload frames, -1 unless *place* is FRAME.
        inline_at: position of its *nbytes* bytes in the header, -1 unless *place* is INLINE.
        content_type: what an ENCODED tensor holds, "" when the sender does not say.
        lease: where a LEASE tensor is, else None.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    place: Place
    nbytes: int
    frame: int = -1
    inline_at: int = -1
    content_type: str = ""
    lease: Lease | None = None


def read_tensors(tables: list[Any] | None, field: str) -> tuple[WireTensor, ...]:
    """Return the tensors of verified ``Tensor`` *tables*, each checked against itself and the others.

    Args:
        tables: the vector's values, None when it is absent.
        field: name of the vector, for errors about a tensor without a name.

    Raises:
        RequestError: BAD_NAME, BAD_DTYPE, BAD_SHAPE, SIZE_MISMATCH, TOO_LARGE, BAD_TENSOR, BAD_LEASE, BAD_FRAMES.
    """
    tensors = tuple(_tensor(values, f"{field}[{index}]") for index, values in enumerate(tables or ()))
    _check_names_differ([tensor.name for tensor in tensors], field)
    frames = sorted(tensor.frame for tensor in tensors if tensor.place == Place.FRAME)
    if frames != list(range(len(frames))):
        raise RequestError(Code.BAD_FRAMES, field=field, expected=f"frames 0 to {len(frames) - 1}, each once", got=frames)
    return tensors


def _check_names_differ(names: list[str], field: str) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if not name:
            raise RequestError(Code.BAD_NAME, field=f"{field}[{index}]", expected="a name")
        if name in seen:
            raise RequestError(Code.BAD_NAME, field=printable(name), expected="a name used once")
        seen.add(name)


def _tensor(values: list[Any], position: str) -> WireTensor:
    name, dtype_number, place_number, shape, frame, nbytes, inline, lease, content_type = values
    field = printable(name) or position
    dtype = _dtype(dtype_number, field)
    _check_size(dtype, shape or (), nbytes, field)
    if content_type and dtype != DType.ENCODED:
        raise RequestError(Code.BAD_TENSOR, field=field, expected="a content_type only with ENCODED", got=content_type)
    place = _place(place_number, field)
    if (inline is not None and place != Place.INLINE) or (lease is not None and place != Place.LEASE):
        raise RequestError(Code.BAD_TENSOR, field=field, message=f"{field}: holds bytes or a lease that its place does not use")
    if place == Place.FRAME:
        _check_frame(frame, field)
    elif place == Place.INLINE:
        _check_inline(inline, nbytes, field)
    else:
        _check_lease(lease, nbytes, field)
    return WireTensor(
        name,
        dtype,
        shape or (),
        place,
        nbytes,
        frame=frame if place == Place.FRAME else -1,
        inline_at=inline[0] if place == Place.INLINE else -1,
        content_type=content_type or "",
        lease=Lease(*lease) if place == Place.LEASE else None,
    )


def _dtype(number: int, field: str) -> DType:
    if not DType.BOOL <= number <= DType.ENCODED:
        raise RequestError(Code.BAD_DTYPE, field=field, expected=f"{DType.BOOL:d} to {DType.ENCODED:d}", got=number)
    return DType(number)


def _place(number: int, field: str) -> Place:
    if not Place.FRAME <= number <= Place.LEASE:
        raise RequestError(Code.BAD_TENSOR, field=field, expected="place Frame, Inline or Lease", got=number)
    return Place(number)


def _check_size(dtype: DType, shape: tuple[int, ...], nbytes: int, field: str) -> None:
    if len(shape) > MAX_RANK:
        raise RequestError(Code.BAD_SHAPE, field=field, expected=f"at most {MAX_RANK} dimensions", got=len(shape))
    if any(dim < 0 for dim in shape):
        raise RequestError(Code.BAD_SHAPE, field=field, expected="dimensions of 0 or more", got=list(shape))
    if dtype == DType.ENCODED:
        if shape != (1,):
            raise RequestError(Code.BAD_SHAPE, field=field, expected="shape [1] with ENCODED", got=list(shape))
        least = 0
    else:
        least = element_count(shape) * ITEM_BYTES.get(dtype, _ELEMENT_HEAD_BYTES)
    if max(least, nbytes) > MAX_TENSOR_BYTES:
        raise RequestError(Code.TOO_LARGE, field=field, expected=f"at most {MAX_TENSOR_BYTES} bytes", got=max(least, nbytes))
    if nbytes < least or (dtype in ITEM_BYTES and nbytes != least):
        raise RequestError(Code.SIZE_MISMATCH, field=field, expected=f"{least} bytes from shape and dtype", got=nbytes)


def _check_frame(frame: int, field: str) -> None:
    if frame >= MAX_FRAMES:
        raise RequestError(Code.BAD_FRAMES, field=field, expected=f"a frame below {MAX_FRAMES}", got=frame)


def _check_inline(inline: tuple[int, int] | None, nbytes: int, field: str) -> None:
    if nbytes > MAX_INLINE_BYTES:
        raise RequestError(Code.TOO_LARGE, field=field, expected=f"at most {MAX_INLINE_BYTES} bytes inline", got=nbytes)
    if inline is None or inline[1] != nbytes:
        got = "none" if inline is None else inline[1]
        raise RequestError(Code.SIZE_MISMATCH, field=field, expected=f"{nbytes} inline bytes", got=got)


def _check_lease(lease: list[int] | None, nbytes: int, field: str) -> None:
    if lease is None or lease[3] != nbytes:
        raise RequestError(Code.BAD_LEASE, field=field, expected=f"a lease of {nbytes} bytes", got=lease and lease[3])
