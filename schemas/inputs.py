"""What a lane takes, checked: tensors against its plan, where each goes in a slot's row, and what lies in them.

The broker checks requests with it, the embedded pipeline its caller's arrays. No sockets, no lane state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .arena import MAX_NAME_BYTES, Words, write_descriptor, write_name
from .leases import place_word
from .plan import DESCRIPTOR_WORDS, MAX_TENSORS, ROW_ALIGN_BYTES, LanePlan, LinkPlan, align
from .status import Code, Place, RequestError, printable
from .tensors import ITEM_BYTES, MAX_BYTES_ELEMENTS, NUMPY_NAME, DType, TensorSpec, element_count, packed_size
from .wire_tensors import WireTensor

FLOATS = frozenset({DType.FP16, DType.FP32, DType.FP64, DType.BF16})
# BF16 is the upper half of a float: NaN and Inf have all bits of the exponent.
_BF16_EXPONENT = 0x7F80
# What a bytes object becomes in Python; other clients have other ways to say ENCODED.
_NO_PICTURE = "expected ENCODED, UINT8 or UINT16, got BYTES; wrap a file's bytes: Encoded(path.read_bytes())"


IN_PLACE = -2


@dataclass(frozen=True, slots=True)
class Copy:
    """One tensor's way into the slot: from the header (frame -1) at *start* or from a frame, *nbytes* to *offset* of the row.

    With frame IN_PLACE nothing is copied: stages read the tensor in a lease, and *offset* is ``leases.place_word``.
    """

    tensor: WireTensor
    frame: int
    start: int
    nbytes: int
    offset: int


def check_inputs(tensors: Sequence[WireTensor], plan: LanePlan) -> int:
    """Check names, datatypes and shapes against the lane; return the request's rows."""
    specs = {spec.name: spec for spec in plan.inputs}
    if not specs:
        return _check_any(tensors)
    missing = [name for name in specs if name not in {tensor.name for tensor in tensors}]
    if missing:
        sent = ", ".join(tensor.name for tensor in tensors) or "none"
        raise RequestError(Code.MISSING_INPUT, field=missing[0], expected=f"inputs {', '.join(specs)}", got=sent)
    rows = {_check_tensor(tensor, specs.get(tensor.name), plan) for tensor in tensors}
    if len(rows) > 1:
        raise RequestError(Code.BAD_SHAPE, field="inputs", expected="the same number of rows in each", got=sorted(rows))
    return rows.pop()


def _check_any(tensors: Sequence[WireTensor]) -> int:
    """Check what a lane that takes any tensors needs: few enough, with names that fit beside their descriptors."""
    if not 1 <= len(tensors) <= MAX_TENSORS:
        raise RequestError(Code.BAD_TENSOR, field="inputs", expected=f"1 to {MAX_TENSORS} tensors", got=len(tensors))
    for tensor in tensors:
        # A name lies beside its descriptor, filled up with zeros: one with zeros of its own would come back as another.
        if len(tensor.name.encode()) > MAX_NAME_BYTES or "\0" in tensor.name:
            expected = f"at most {MAX_NAME_BYTES} bytes, none of them zero"
            raise RequestError(Code.BAD_NAME, field=printable(tensor.name), expected=expected, got=tensor.name)
    return 1


def _check_tensor(tensor: WireTensor, spec: TensorSpec | None, plan: LanePlan) -> int:
    """Check one tensor against what the lane takes under its name; return its rows."""
    if spec is None:
        known = ", ".join(s.name for s in plan.inputs)
        raise RequestError(Code.BAD_NAME, field=printable(tensor.name), expected=f"inputs {known}", got=tensor.name)
    if spec.dtype == DType.ENCODED:
        return _check_picture(tensor)
    if tensor.dtype != spec.dtype:
        raise RequestError(Code.BAD_DTYPE, field=tensor.name, expected=spec.dtype.name, got=tensor.dtype.name)
    fits = len(tensor.shape) == len(spec.shape) and all(w in (-1, h) for w, h in zip(spec.shape, tensor.shape, strict=True))
    if not fits:
        raise _other_shape(tensor, spec, plan)
    rows = tensor.shape[0] if tensor.shape else 1
    if rows == 0:
        raise RequestError(Code.BAD_SHAPE, field=tensor.name, expected="1 row or more", got=list(tensor.shape))
    if rows > plan.max_rows:
        field = f"lane.{plan.name}.max_rows"
        raise RequestError(Code.TOO_LARGE, field=tensor.name, expected=f"1 to {plan.max_rows} rows ({field})", got=rows)
    return rows


def _other_shape(tensor: WireTensor, spec: TensorSpec, plan: LanePlan) -> RequestError:
    """Return the refusal of a shape; where only the rows are too many, it names the key that allows more."""
    expected, got = list(spec.shape), list(tensor.shape)
    more_rows = len(got) == len(expected) > 0 and got[0] > plan.max_rows
    if more_rows and all(want in (-1, have) for want, have in zip(expected[1:], got[1:], strict=True)):
        hint = f"(lane.{plan.name}.max_rows)"
        message = f"{printable(tensor.name)}: expected {printable(expected)} {hint}, got {printable(got)}"
        return RequestError(Code.BAD_SHAPE, field=tensor.name, message=message)
    return RequestError(Code.BAD_SHAPE, field=tensor.name, expected=expected, got=got)


def _check_picture(tensor: WireTensor) -> int:
    """An image lane takes an encoded picture, or a raw frame; which frames its rules allow, the decode stage knows."""
    if tensor.dtype == DType.BYTES:
        message = f"{printable(tensor.name)}: {_NO_PICTURE}"
        raise RequestError(Code.BAD_DTYPE, field=tensor.name, message=message)
    if tensor.dtype not in (DType.ENCODED, DType.UINT8, DType.UINT16):
        raise RequestError(Code.BAD_DTYPE, field=tensor.name, expected="ENCODED, UINT8 or UINT16", got=tensor.dtype.name)
    if tensor.dtype != DType.ENCODED and len(tensor.shape) not in (2, 3):
        raise RequestError(Code.BAD_SHAPE, field=tensor.name, expected="(height, width) or (height, width, 3)", got=tensor.shape)
    return 1


def may_stay_in_place(tensor: WireTensor, plan: LanePlan) -> bool:
    """True when stages may read a leased tensor where its client can write at any time.

    Not one whose content says how long its parts are: stages trust what was checked. Nor one that is the lane's answer.
    """
    return tensor.dtype in ITEM_BYTES and plan.final_link != 0


def place_inputs(tensors: Sequence[WireTensor], plan: LanePlan, lease_stride: int = 0) -> tuple[Copy, ...]:
    """Say where each tensor goes: its own place in a static link, else one behind the other, in the lane's order.

    Args:
        lease_stride: bytes from one frame of a lease to the next, for tensors that stay there.
    """
    link = plan.links[0]
    order = [t.name for t in link.tensors]
    ordered = sorted(tensors, key=lambda t: order.index(t.name)) if order else list(tensors)
    copies: list[Copy] = []
    at = 0
    for index, tensor in enumerate(ordered):
        if tensor.lease is not None:
            word = place_word(tensor.lease.region, tensor.lease.frame * lease_stride)
            copies.append(Copy(tensor, IN_PLACE, 0, tensor.nbytes, word))
            continue
        offset = link.tensors[index].offset if link.static else at
        start = tensor.inline_at if tensor.place == Place.INLINE else 0
        copies.append(Copy(tensor, tensor.frame, start, tensor.nbytes, offset))
        at = align(offset + tensor.nbytes, ROW_ALIGN_BYTES)
    end = max((copy.offset + copy.nbytes for copy in copies if copy.frame != IN_PLACE), default=0)
    if end > link.row_bytes:
        raise RequestError(
            Code.TOO_LARGE, field=f"lane.{plan.name}.max_encoded_bytes", expected=f"at most {link.row_bytes} bytes", got=end
        )
    return tuple(copies)


def descriptor_words(copies: Sequence[Copy], link: LinkPlan) -> Words:
    """Return the descriptor words (8, 16) of a slot with these tensors; unused ones are zero."""
    words = np.zeros((MAX_TENSORS, DESCRIPTOR_WORDS), np.uint64)
    for row, copy in zip(words, copies, strict=False):
        tensor = copy.tensor
        write_descriptor(row, tensor.dtype, tensor.shape, nbytes=tensor.nbytes, offset=copy.offset)
        if not link.tensors:
            write_name(row, tensor.name.encode())
    return words


def check_content(tensor: WireTensor, content: memoryview, *, finite: bool) -> None:
    """Check what lies in a tensor's bytes: the form of BYTES, and NaN or Inf where these are not wanted.

    Raises:
        RequestError: BAD_TENSOR, SIZE_MISMATCH or NOT_FINITE.
    """
    if tensor.dtype == DType.BYTES:
        _check_bytes(tensor, content)
    elif finite and tensor.dtype in FLOATS and not _is_finite(tensor.dtype, content):
        raise RequestError(Code.NOT_FINITE, field=tensor.name, expected="finite values", got="NaN or Inf")


def _is_finite(dtype: DType, content: memoryview) -> bool:
    values = np.frombuffer(content, NUMPY_NAME[dtype])
    if dtype == DType.BF16:
        return bool((values & _BF16_EXPONENT != _BF16_EXPONENT).all())
    return bool(np.isfinite(values).all())


def _check_bytes(tensor: WireTensor, content: memoryview) -> None:
    count = element_count(tensor.shape)
    if count > MAX_BYTES_ELEMENTS:
        raise RequestError(Code.TOO_LARGE, field=tensor.name, expected=f"at most {MAX_BYTES_ELEMENTS} BYTES elements", got=count)
    try:
        used = packed_size(content, count)
    except ValueError as error:
        raise RequestError(Code.BAD_TENSOR, field=tensor.name, message=str(error)) from None
    if used != len(content):
        raise RequestError(Code.SIZE_MISMATCH, field=tensor.name, expected=f"{used} bytes in {count} elements", got=len(content))
