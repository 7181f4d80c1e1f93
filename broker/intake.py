"""From a verified header and its frames to a request of a lane: the checks that need the lane, and the copy into the slot.

Owner: the broker's main thread. Reads and writes no socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from schemas.arena import LaneArena, Words
from schemas.checksum import check_payload
from schemas.inputs import FLOATS, IN_PLACE, Copy, check_content, check_inputs, descriptor_words, place_inputs
from schemas.layout import Layout, check_route, read_checksum
from schemas.lease_regions import LeaseRegions
from schemas.plan import LanePlan
from schemas.status import Code, Flag, KeyPolicy, RequestError
from schemas.tensors import DType
from schemas.wire_tensors import Lease, WireTensor

from .lanes import Lane
from .leased_inputs import check_flag, lease_wishes, staying_tensors
from .leases import Held, LeasePool, Wish, no_leases
from .life import Client, Request

Frame: TypeAlias = bytes | memoryview

# Bindings kept, one for each layout that clients use, as many as a LayoutCache keeps; more are made anew, nothing is lost.
MAX_BINDINGS = 1024
# The clock is read once a turn, and what came in it is younger by as much as the turn takes.
CLOCK_SLACK_NS = 1_000_000_000
# Plain integers: an enum's operators cost 1 us each.
_STREAM = int(Flag.STREAM)
_INTO_LEASE = int(Flag.REPLY_IN_LEASE)
_IDEMPOTENT = int(Flag.IDEMPOTENT)


@dataclass(frozen=True, slots=True)
class Binding:
    """What one layout means to one lane: checked once, used by every request of that layout.

    *wishes* are the frames of leases that it names. *snapshots* are those whose content must not change once it is checked: each
    is copied when the request comes, and is then like one more payload frame of *tensors*.
    """

    key: int
    lane: Lane
    layout: Layout
    tensors: tuple[WireTensor, ...]
    rows: int
    input_bytes: int
    copies: tuple[Copy, ...]
    descriptors: Words | None
    needs_look: bool
    policy: int
    latest_n: int
    wishes: tuple[Wish, ...] = ()
    snapshots: tuple[Lease, ...] = ()


@dataclass(slots=True)
class Payload:
    """What the broker keeps of a request until it is answered; *header* and *frames* only until they are in a slot."""

    binding: Binding
    header: bytes
    frames: Sequence[Frame]


class Intake:
    """Turns messages into requests for the lanes of one server.

    Args:
        leases, regions: what is lent to clients, None where nothing is.
    """

    def __init__(
        self,
        lanes: dict[str, Lane],
        arenas: list[LaneArena],
        *,
        max_budget_us: int,
        leases: LeasePool | None = None,
        regions: LeaseRegions | None = None,
    ) -> None:
        self._lanes = lanes
        self._leases = leases or no_leases()
        self._lease_regions = regions
        self._max_budget_us = max_budget_us
        self._bindings: dict[int, Binding] = {}
        self._regions = [arena.regions[arena.plan.links[0].region] for arena in arenas]
        self._rows = [region.reshape(-1).data for region in self._regions]
        self._strides = [region.shape[1] for region in self._regions]
        self._descriptors = [arena.descriptors[0] for arena in arenas]
        # Which layout's descriptors each slot has now: most requests find their own.
        self._slot_layouts = [[-1] * arena.plan.slots for arena in arenas]

    def request(
        self, client: Client, layout: Layout, route: Sequence[int], header: bytes, frames: Sequence[Frame], now_ns: int
    ) -> Request:
        """Return the request that a message makes.

        Args:
            route: what ``ROUTE.unpack_from`` gives of *header*.
            now_ns: when it arrived.

        Raises:
            RequestError: what is wrong with it, by field.
        """
        check_route(route, layout, len(frames))
        binding = self._bindings.get(layout.key) or self._bind(layout)
        budget_us, flags, plan = route[1], route[6], binding.lane.plan
        if flags & _STREAM or budget_us > self._max_budget_us:
            raise self._not_served(flags, budget_us)
        if binding.policy or plan.max_age_ns:
            _check_marks(route, binding, now_ns)
        held, frames = self._leased(client, binding, flags, frames) if binding.wishes or flags & _INTO_LEASE else ((), frames)
        if binding.needs_look or frames:
            _look_at(binding, header, frames)
        return Request(
            0,
            client,
            route[0],
            binding.lane,
            now_ns + (budget_us or plan.default_budget_us) * 1000,
            now_ns,
            Payload(binding, header, frames),
            binding.input_bytes,
            binding.rows,
            route[10],
            route[2],
            route[3],
            bool(flags & _IDEMPOTENT) and plan.idempotent,
            binding.policy,
            binding.latest_n,
            leases=held,
        )

    def _leased(
        self, client: Client, binding: Binding, flags: int, frames: Sequence[Frame]
    ) -> tuple[tuple[Held, ...], Sequence[Frame]]:
        """Return the frames of leases that a request names, and its payload frames with those that were copied behind them."""
        check_flag(binding.wishes, is_set=bool(flags & _INTO_LEASE), has_leases=self._leases.count > 0)
        held = tuple(self._leases.find(client, wish) for wish in binding.wishes)
        return held, [*frames, *map(self._snapshot, binding.snapshots)]

    def _snapshot(self, lease: Lease) -> bytes:
        """Return a leased frame's bytes as they are now: what is checked must be what the stages get."""
        assert self._lease_regions is not None, "a pool without regions finds no lease"
        at = lease.frame * self._leases.form.stride
        return self._lease_regions.region(lease.region)[at : at + lease.nbytes].tobytes()

    def _not_served(self, flags: int, budget_us: int) -> RequestError:
        if flags & _STREAM:
            return RequestError(Code.NOT_SUPPORTED, field="flags", expected="no STREAM", got=Flag(flags))
        return RequestError(Code.BAD_PARAM, field="budget_us", expected=f"at most {self._max_budget_us}", got=budget_us)

    def fill(self, request: Request) -> None:
        """Copy a request's payload into its slot: the one copy on the way in. One that runs again finds it there."""
        payload = request.payload
        assert isinstance(payload, Payload)
        if not payload.header:
            return
        binding, slot, index = payload.binding, request.slot, request.lane.index
        rows, base = self._rows[index], slot * self._strides[index]
        for copy in binding.copies:
            at = base + copy.offset
            source = payload.header if copy.frame < 0 else payload.frames[copy.frame]
            rows[at : at + copy.nbytes] = memoryview(source)[copy.start : copy.start + copy.nbytes]
        if binding.descriptors is not None and self._slot_layouts[index][slot] != binding.key:
            self._descriptors[index][slot] = binding.descriptors
            self._slot_layouts[index][slot] = binding.key
        payload.header, payload.frames = b"", ()

    # --- the checks of one layout ----------------------------------------------------------------------------------------

    def _bind(self, layout: Layout) -> Binding:
        lane = self._lanes.get(layout.model)
        if lane is None:
            known = ", ".join(sorted(self._lanes))
            raise RequestError(Code.MODEL_NOT_FOUND, field="model", expected=f"one of {known}", got=layout.model)
        if layout.version not in ("", lane.plan.version):
            raise RequestError(Code.VERSION_NOT_FOUND, field="version", expected=lane.plan.version, got=layout.version)
        _check_supported(layout, lane.plan)
        wishes = lease_wishes(layout, has_leases=self._leases.count > 0)
        for wish in wishes:
            self._leases.check_place(wish)
        link = lane.plan.links[0]
        rows = check_inputs(layout.tensors, lane.plan)
        _check_outputs(layout, lane.plan)
        tensors, snapshots = staying_tensors(layout, lane.plan) if wishes else (layout.tensors, ())
        placed = place_inputs(tensors, lane.plan, self._leases.form.stride)
        copies = tuple(copy for copy in placed if copy.frame != IN_PLACE)
        # With leases the stages must be able to tell also for inputs that always lie in one place.
        has_descriptors = not link.static or self._leases.count > 0
        binding = Binding(
            layout.key,
            lane,
            layout,
            tensors,
            rows,
            sum(copy.nbytes for copy in copies),
            copies,
            descriptor_words(placed, link) if has_descriptors else None,
            layout.checksum_at >= 0
            or any(t.dtype == DType.BYTES or (layout.finite and t.dtype in FLOATS) for t in layout.tensors),
            int(layout.key_policy),
            1 if layout.key_policy == KeyPolicy.LATEST_ONLY else layout.latest_n,
            wishes,
            snapshots,
        )
        if layout.key > 0:
            if len(self._bindings) >= MAX_BINDINGS:
                self._bindings.clear()
            self._bindings[layout.key] = binding
        return binding


def _check_outputs(layout: Layout, plan: LanePlan) -> None:
    known = {spec.name for spec in plan.outputs}
    for name in layout.outputs if known else ():
        if name not in known:
            raise RequestError(Code.BAD_NAME, field="outputs", expected=f"some of {', '.join(sorted(known))}", got=name)


def _check_supported(layout: Layout, plan: LanePlan) -> None:
    if layout.latest_n and layout.key_policy != KeyPolicy.LATEST_N:
        expected = f"0 with {layout.key_policy.name}"
        raise RequestError(Code.BAD_PARAM, field="latest_n", expected=expected, got=layout.latest_n)
    if layout.latest_n > plan.backlog:
        expected = f"at most {plan.backlog} (lane.{plan.name}.backlog)"
        raise RequestError(Code.BAD_PARAM, field="latest_n", expected=expected, got=layout.latest_n)


# --- the checks of one message -------------------------------------------------------------------------------------------


def _check_marks(route: Sequence[int], binding: Binding, now_ns: int) -> None:
    """Check born_us and key where the lane's age limit or the request's policy uses them."""
    born_us, key = route[2], route[3]
    if binding.policy and not key:
        raise RequestError(Code.BAD_PARAM, field="key", expected=f"not 0 with {binding.layout.key_policy.name}", got=0)
    # From another clock, most of all the wall clock, it would never be old.
    if binding.lane.plan.max_age_ns and born_us * 1000 > now_ns + CLOCK_SLACK_NS:
        expected = f"0, or a time of this host's monotonic clock, now {now_ns // 1000}"
        raise RequestError(Code.BAD_PARAM, field="born_us", expected=expected, got=born_us)


def _look_at(binding: Binding, header: bytes, frames: Sequence[Frame]) -> None:
    """Check what lies in the payload: frame sizes, the form of BYTES, and NaN where the request asked for it."""
    checksum = read_checksum(header, binding.layout)
    if checksum:
        check_payload(checksum, binding.tensors, header, frames)
    for copy in binding.copies:
        tensor = copy.tensor
        source = memoryview(header if copy.frame < 0 else frames[copy.frame])
        if copy.frame >= 0 and len(source) != tensor.nbytes:
            raise RequestError(Code.SIZE_MISMATCH, field=tensor.name, expected=f"{tensor.nbytes} bytes", got=len(source))
        content = source[copy.start : copy.start + copy.nbytes]
        check_content(tensor, content, finite=binding.layout.finite)
