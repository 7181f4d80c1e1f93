"""What a layout says about leases: the frames that it names, and which inputs stay in theirs. Pure."""

from __future__ import annotations

from schemas.inputs import FLOATS, may_stay_in_place
from schemas.layout import Layout
from schemas.plan import LanePlan
from schemas.status import Code, Place, RequestError, printable
from schemas.wire_tensors import Lease, WireTensor

from .leases import Wish


def lease_wishes(layout: Layout, *, has_leases: bool) -> tuple[Wish, ...]:
    """Return the frames of leases that requests of *layout* name.

    Raises:
        RequestError: NOT_SUPPORTED where the server lends none, BAD_LEASE for a frame that is named twice.
    """
    wishes = [Wish(t.name, t.lease, is_reply=False) for t in layout.tensors if t.lease is not None]
    names = zip(layout.outputs, layout.output_leases, strict=False)
    wishes += [Wish(name, lease, is_reply=True) for name, lease in names if lease is not None]
    if wishes and not has_leases:
        raise RequestError(Code.NOT_SUPPORTED, field="place", expected="FRAME or INLINE", got="LEASE")
    seen: set[tuple[int, int]] = set()
    for wish in wishes:
        place = (wish.lease.region, wish.lease.frame)
        if place in seen:
            expected = "a frame that this request names once"
            raise RequestError(Code.BAD_LEASE, field=printable(wish.name), expected=expected, got=f"frame {wish.lease.frame}")
        seen.add(place)
    return tuple(wishes)


def check_flag(wishes: tuple[Wish, ...], *, is_set: bool, has_leases: bool) -> None:
    """Check that the flag ReplyInLease is set for requests that name a frame for an output, and for no others.

    Raises:
        RequestError: BAD_LEASE, or NOT_SUPPORTED where the server lends none.
    """
    wanted = any(wish.is_reply for wish in wishes)
    if wanted != is_set:
        code = Code.BAD_LEASE if has_leases else Code.NOT_SUPPORTED
        expected = "REPLY_IN_LEASE with an output that names a lease, and with no other"
        raise RequestError(code, field="flags", expected=expected, got="REPLY_IN_LEASE" if is_set else "none")


def staying_tensors(layout: Layout, plan: LanePlan) -> tuple[tuple[WireTensor, ...], tuple[Lease, ...]]:
    """Return the inputs of *layout* with those in leases as they reach the stages, and the leases to be copied for it.

    Raw tensors stay in their frames. What is checked by its content is copied first, and is then like a payload frame behind
    those that came: encoded pictures, BYTES, everything under a checksum, and floats that must be finite.
    """
    tensors: list[WireTensor] = []
    snapshots: list[Lease] = []
    for tensor in layout.tensors:
        is_checked = layout.checksum_at >= 0 or (layout.finite and tensor.dtype in FLOATS)
        if tensor.lease is None or (may_stay_in_place(tensor, plan) and not is_checked):
            tensors.append(tensor)
            continue
        frame = layout.frames + len(snapshots)
        snapshots.append(tensor.lease)
        tensors.append(tensor._replace(place=Place.FRAME, frame=frame, lease=None))
    return tuple(tensors), tuple(snapshots)
