"""The payload's checksum: what it covers, in which order, and what is said when it cannot be made."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from schemas import checksum
from schemas.checksum import check_payload, payload_checksum
from schemas.status import Code, Place, RequestError
from schemas.tensors import DType
from schemas.wire_tensors import WireTensor

HEADER = b"....ab...cde"
INLINE = (
    WireTensor("x", DType.UINT8, (2,), Place.INLINE, 2, inline_at=4),
    WireTensor("y", DType.UINT8, (1,), Place.FRAME, 1, frame=1),
    WireTensor("z", DType.UINT8, (3,), Place.INLINE, 3, inline_at=9),
    WireTensor("w", DType.UINT8, (1,), Place.FRAME, 1, frame=0),
)


def test_it_is_the_xxh64_of_all_parts_as_one() -> None:
    """With seed 0; the values are those of the algorithm's own description."""
    assert payload_checksum([]) == 0xEF46DB3751D8E999
    assert payload_checksum([b"a"]) == 0xD24EC4F1A98C6E5B
    assert (
        payload_checksum([b"ab", memoryview(b"c")]) == payload_checksum([np.frombuffer(b"abc", np.uint8)]) == 0x44BC2CF5AD770999
    )


def test_inline_tensors_come_first_in_the_inputs_order_then_the_frames_in_theirs() -> None:
    """Whatever tensor a frame belongs to."""
    check_payload(payload_checksum([b"abcde", b"F0", b"F1"]), INLINE, HEADER, [b"F0", b"F1"])


@pytest.mark.parametrize(
    ("header", "frames"), [(HEADER[:-1] + b"f", [b"F0", b"F1"]), (HEADER, [b"F0", b"F2"]), (HEADER, [b"F1", b"F0"])]
)
def test_any_other_byte_or_order_is_refused(header: bytes, frames: list[bytes]) -> None:
    """The error names the field, not the bytes."""
    with pytest.raises(RequestError) as caught:
        check_payload(payload_checksum([b"abcde", b"F0", b"F1"]), INLINE, header, frames)

    assert (caught.value.code, caught.value.field) == (Code.BAD_CHECKSUM, "checksum")


def test_a_missing_library_is_named_with_the_extra_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a request that has a checksum meets it."""
    monkeypatch.setitem(sys.modules, "xxhash", None)
    checksum._library.cache_clear()

    with pytest.raises(RequestError, match=r"pip install 'slotline\[checksum\]'") as caught:
        payload_checksum([b"a"])

    checksum._library.cache_clear()
    assert caught.value.code is Code.NOT_SUPPORTED
