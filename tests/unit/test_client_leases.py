"""A client's side of a lease: frames that are open, busy, closed and free again, and what requests and replies say of them."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from client_helpers import error, make_session, read, reply, submit

from clients.errors import ConnectionLost, RequestRefused
from clients.leases import Frame, Lease
from clients.resend import lose, note
from clients.session import Session
from schemas.encode import encode
from schemas.leases import Answer
from schemas.status import Code, Flag, Kind, Place
from schemas.tables import BodyTag
from schemas.templates import ReplyTemplate, TensorForm
from schemas.tensors import DType
from schemas.wire import Route
from schemas.wire_tensors import Lease as LeaseRef

ANSWER = Answer(Code.NONE, region=3, generation=9, frames=2, frame_bytes=5000, stride=8192)


def make_lease(session: Session | None = None) -> Lease:
    """Return a lease over private memory, known to *session*."""
    lease = Lease(ANSWER, mmap.mmap(-1, ANSWER.frames * ANSWER.stride))
    if session is not None:
        session.leases.add(lease)
    return lease


def take(lease: Lease) -> Frame:
    """Return a frame that there must be."""
    frame = lease.frame_nowait()
    assert frame is not None
    return frame


def release(request_id: int) -> bytes:
    """Return the message that frees the frames of a request that was answered before."""
    route = Route(request_id, 0, 0, 0, 0, 0, Flag.FINAL | Flag.RELEASED, 0, 0, Kind.RELEASE, 0, 0)
    return encode(route, BodyTag.NONE, {})


def test_a_frame_is_written_where_the_server_reads_it() -> None:
    """Each at its place in the region."""
    lease = make_lease()
    take(lease).array((2, 3), np.uint16)[...] = 1
    take(lease).array(4)[:] = 2

    assert bytes(lease.memory(0, 12)) == b"\1\0" * 6
    assert bytes(lease.memory(1, 5)) == b"\2\2\2\2\0"
    assert lease.frame_nowait() is None


def test_a_request_names_the_frame_and_sends_nothing() -> None:
    """Shape and datatype are those of the array; the next array of the frame stands for it from then on."""
    session = make_session()
    frame = take(make_lease(session))
    frame.array((1, 20), np.float32)
    outgoing = submit(session, {"x": frame})
    route, layout = read(outgoing)

    (tensor,) = layout.tensors
    assert (tensor.dtype, tensor.shape, tensor.place) == (DType.FP32, (1, 20), Place.LEASE)
    assert tensor.lease == LeaseRef(3, 9, 0, 80)
    assert (outgoing.frames, route.payload_frames, route.flags) == ((), 0, Flag.IDEMPOTENT)


def test_an_output_names_its_frame() -> None:
    """With all the room that it has, and the flag; outputs without one are the server's choice."""
    session = make_session()
    frame = take(make_lease(session))
    outgoing = submit(session, outputs={"y": frame, "z": None})
    route, layout = read(outgoing)

    assert layout.outputs == ("y", "z")
    assert layout.output_leases == (LeaseRef(3, 9, 0, 5000), None)
    assert route.flags == Flag.IDEMPOTENT | Flag.REPLY_IN_LEASE
    assert read(submit(session, outputs={"y": None}))[0].flags == Flag.IDEMPOTENT


def test_an_output_in_a_frame_is_a_view_of_it() -> None:
    """Of as many bytes as the reply says."""
    session = make_session()
    lease = make_lease(session)
    outgoing = submit(session, outputs={"y": take(lease)})
    form = TensorForm("y", DType.UINT8, (3,), 3, lease=LeaseRef(3, 9, 0, 3))
    header = ReplyTemplate("ticks", "1", [form], stages=0).header((outgoing.call.request_id, 0, 0), b"", 0, 0)
    lease.memory(0, 3)[:] = b"abc"
    session.receive(header)
    result = outgoing.call.result()["y"]
    lease.memory(0, 1)[:] = b"z"

    assert result.tobytes() == b"zbc"


@pytest.mark.parametrize("ref", [LeaseRef(3, 8, 0, 3), LeaseRef(4, 9, 0, 3), LeaseRef(3, 9, 2, 3), LeaseRef(3, 9, 0, 5001)])
def test_an_output_in_no_frame_of_ours_is_no_reply(ref: LeaseRef) -> None:
    """Whatever the server says, nothing outside of the lease is read."""
    session = make_session()
    outgoing = submit(session, outputs={"y": take(make_lease(session))})
    form = TensorForm("y", DType.UINT8, (ref.nbytes,), ref.nbytes, lease=ref)
    session.receive(ReplyTemplate("ticks", "1", [form], stages=0).header((outgoing.call.request_id, 0, 0), b"", 0, 0))

    with pytest.raises(Exception, match="not a valid reply"):
        outgoing.call.result()


def test_a_busy_frame_cannot_be_written() -> None:
    """Its arrays are read-only until the answer says that it is free."""
    session = make_session()
    frame = take(make_lease(session))
    array = frame.array((1, 20), np.float32)
    outgoing = submit(session, {"x": frame})
    assert frame.is_busy
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(RuntimeError, match="busy"):
        frame.array(4)
    with pytest.raises(RuntimeError, match="busy"):
        submit(session, outputs={"y": frame})
    session.receive(reply(outgoing.call, flags=Flag.FINAL | Flag.RELEASED))

    assert not frame.is_busy
    array[0] = 1


@pytest.mark.parametrize(
    ("code", "flags", "is_busy"),
    [
        (Code.BAD_SHAPE, 0, False),
        (Code.BUSY, Flag.RELEASED, False),
        (Code.DEADLINE_EXCEEDED, Flag.RELEASED, False),
        (Code.DEADLINE_EXCEEDED, 0, True),
        (Code.DRAINING, 0, True),
        (Code.QUARANTINED, 0, True),
    ],
)
def test_an_error_releases_by_its_flag_or_as_a_refusal(code: Code, flags: int, is_busy: bool) -> None:
    """What stays busy is freed by a Release, which answers no call."""
    session = make_session()
    frame = take(make_lease(session))
    frame.array(4)
    outgoing = submit(session, {"x": frame})
    header = bytearray(error(outgoing.call, code))
    header[read_flags_at(bytes(header))] |= flags
    session.receive(bytes(header))
    assert outgoing.call.outcome is not None
    assert (frame.is_busy, session.expects_messages) == (is_busy, is_busy)
    session.receive(release(outgoing.call.request_id))

    assert (frame.is_busy, session.expects_messages, session.strays) == (False, False, 0)


def read_flags_at(header: bytes) -> int:
    """Return where Route.flags is."""
    from schemas.verify import find_route

    at = find_route(header)
    assert at is not None
    return at + 40


@pytest.mark.parametrize("ending", ["cancel", "expire"])
def test_a_call_that_ends_here_leaves_its_frame_busy(ending: str) -> None:
    """The server has not said that it is done; its late answer does."""
    session = make_session()
    frame = take(make_lease(session))
    frame.array(4)
    outgoing = submit(session, {"x": frame})
    if ending == "cancel":
        session.cancel(outgoing.call)
    else:
        session.expire(1 << 62)
    assert frame.is_busy
    session.receive(reply(outgoing.call, flags=Flag.FINAL | Flag.RELEASED))

    assert not frame.is_busy


def test_a_frame_read_by_two_is_free_after_both() -> None:
    """Whichever answer comes first."""
    session = make_session()
    frame = take(make_lease(session))
    frame.array(4)
    first, second = submit(session, {"x": frame}), submit(session, {"x": frame})
    for outgoing, busy in ((second, True), (first, False)):
        session.receive(reply(outgoing.call, flags=Flag.FINAL | Flag.RELEASED))
        assert frame.is_busy == busy


def test_a_frame_closed_while_it_is_busy_is_free_afterwards() -> None:
    """One that is idle at once; its arrays are read-only for good."""
    session = make_session()
    lease = make_lease(session)
    with take(lease) as idle:
        kept = idle.array(4)
    with take(lease) as busy:
        busy.array(4)
        outgoing = submit(session, {"x": busy})
    assert (lease.closing, len(lease._free)) == (1, 1)
    session.receive(reply(outgoing.call, flags=Flag.FINAL | Flag.RELEASED))

    assert (lease.closing, len(lease._free)) == (0, 2)
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 1
    with pytest.raises(RuntimeError, match="closed"):
        busy.array(4)
    busy.close()
    assert len(lease._free) == 2


def test_the_end_of_the_connection_ends_the_lease() -> None:
    """Nothing of it can be used; what was busy is nobody's."""
    session = make_session()
    lease = make_lease(session)
    frame, other = take(lease), take(lease)
    frame.array(4)
    outgoing = submit(session, {"x": frame})
    session.end_all(lambda model: ConnectionLost(model))
    assert isinstance(outgoing.call.outcome, ConnectionLost)

    uses: list[Any] = [lease.frame_nowait, lambda: frame.array(4), lambda: submit(session, {"x": frame}), lambda: other.array(4)]
    for use in uses:
        with pytest.raises(ConnectionLost, match="the lease ended"):
            use()


def test_a_client_that_resends_does_not_resend_what_names_a_frame() -> None:
    """The lease has ended with the connection; other calls go on."""
    session = make_session()
    frame = take(make_lease(session))
    array = frame.array(4)
    leased, plain = submit(session, {"x": frame}, now_ns=0), submit(session, now_ns=0)
    for outgoing in (leased, plain):
        note([outgoing.call], outgoing.header, outgoing.frames)
    kept = lose(session, lambda model: ConnectionLost(model), "why", 1)

    assert kept == [plain.call]
    assert isinstance(leased.call.outcome, ConnectionLost)
    array[:] = 1
    with pytest.raises(ConnectionLost, match="the lease ended"):
        frame.array(4)


def test_what_does_not_fit_or_cannot_be_sent_is_refused() -> None:
    """Before anything is written."""
    frame = take(make_lease())
    for shape, dtype in (((5001,), np.uint8), ((2,), np.complex128)):
        with pytest.raises(RequestRefused):
            frame.array(shape, dtype)
    with pytest.raises(RuntimeError, match="nothing was written"):
        submit(make_session(), {"x": frame})


def test_waiting_is_of_use_only_for_frames_that_come_back() -> None:
    """With all of them open in the program nobody would ever give one."""
    lease = make_lease()
    frames = [take(lease), take(lease)]
    with pytest.raises(RuntimeError, match="all 2 frames of the lease are open"):
        lease.check_wait(1.0, is_over=False)
    frames[0].use()
    frames[0].close()
    lease.check_wait(1.0, is_over=False)

    with pytest.raises(TimeoutError, match="within 1 s"):
        lease.check_wait(1.0, is_over=True)


def test_a_closed_lease_keeps_its_memory_only_for_arrays() -> None:
    """It says that it is closed."""
    lease = make_lease()
    array = take(lease).array(4)
    lease.close()
    array[:] = 5

    with pytest.raises(RuntimeError, match="the lease is closed"):
        lease.frame_nowait()
