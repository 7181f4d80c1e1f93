"""The generator with leases: which requests can lie in a frame, and when a frame is free again."""

from __future__ import annotations

import numpy as np
import pytest
from bench_helpers import message

from bench.inputs import requests_of
from bench.lease_load import Frames, Leasable
from schemas.arrays import Encoded
from schemas.encode import encode
from schemas.layout import read_layout
from schemas.status import Code, Flag, Kind, Place
from schemas.tables import BodyTag
from schemas.tensors import DType
from schemas.wire import Route
from schemas.wire_tensors import Lease

REPLY = Flag.FINAL | Flag.RELEASED


def release(request_id: int) -> bytes:
    """Return the message that says that a request's frames are free."""
    route = Route._make([0] * len(Route._fields))._replace(request_id=request_id, flags=int(REPLY), kind=int(Kind.RELEASE))
    return encode(route, BodyTag.NONE, None)


@pytest.mark.parametrize(
    ("value", "dtype", "content"),
    [
        (np.arange(6, dtype=np.float32).reshape(2, 3), DType.FP32, np.arange(6, dtype=np.float32).tobytes()),
        (np.full(5000, 7, np.uint8), DType.UINT8, bytes([7]) * 5000),
        (Encoded(b"picture", "image/png"), DType.ENCODED, b"picture"),
    ],
    ids=["inline", "in a payload frame", "encoded"],
)
def test_a_request_keeps_its_tensor_and_only_its_place_changes(value: object, dtype: DType, content: bytes) -> None:
    """However the ordinary request carries the bytes, the leased one only names the frame."""
    (sent,) = requests_of("lane", [{"x": value}]).messages
    leasable = Leasable.of(sent)
    lease = Lease(region=3, generation=9, frame=1, nbytes=len(content))
    named = read_layout(leasable.template(lease).header(5, 0))

    (before,), (after,) = read_layout(sent[0]).tensors, named.tensors
    assert (leasable.content, named.model, after.lease, named.frames) == (content, "lane", lease, 0)
    assert (after.place, after.dtype) == (Place.LEASE, dtype)
    assert (after.name, after.shape, after.nbytes, after.content_type) == (
        before.name, before.shape, before.nbytes, before.content_type,
    )  # fmt: skip


def test_a_request_of_two_tensors_fits_no_frame() -> None:
    """A frame holds one."""
    (sent,) = requests_of("lane", [{"x": np.zeros(3), "y": np.zeros(3)}]).messages
    with pytest.raises(ValueError, match="--lease: expected requests of one input each, got 2"):
        Leasable.of(sent)


def test_a_frame_is_free_with_its_answer() -> None:
    """The one that has been free for longest is used next; what comes twice, or for nobody, frees nothing."""
    frames = Frames(2)
    assert [frames.use(1), frames.use(2)] == [0, 1]
    assert not frames.free

    assert frames.book_message(message(2, flags=REPLY))
    assert frames.book_message(message(2, flags=REPLY))
    assert frames.book_message(message(77, flags=REPLY))
    assert frames.book_message(b"nothing that can be read")
    assert list(frames.free) == [1]
    assert frames.use(3) == 1


def test_a_frame_that_a_stage_still_reads_is_not_free() -> None:
    """It is with the Release, which answers nothing; what was refused was never taken."""
    frames = Frames(2)
    frames.use(1)
    frames.use(2)

    assert frames.book_message(message(1, code=Code.DEADLINE_EXCEEDED))
    assert not frames.free
    assert not frames.book_message(release(1))
    assert list(frames.free) == [0]
    assert frames.book_message(message(2, code=Code.BAD_LEASE))
    assert list(frames.free) == [0, 1]
