"""From a verified header and its frames to a request of a lane: the checks that need the lane, and the copy into the slot.

Owner: the broker's main thread. Reads and writes no socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from schemas.arena import LaneArena, Words
from schemas.checksum import check_payload
from schemas.inputs import FLOATS, Copy, check_content, check_inputs, descriptor_words, place_inputs
from schemas.layout import Layout, check_route, read_checksum
from schemas.plan import LanePlan
from schemas.status import Code, Flag, KeyPolicy, Place, RequestError
from schemas.tensors import DType

from .lanes import Lane
from .life import Client, Request

Frame: TypeAlias = bytes | memoryview

# Bindings kept, one for each layout that clients use, as many as a LayoutCache keeps; more are made anew, nothing is lost.
MAX_BINDINGS = 1024
# The clock is read once a turn, and what came in it is younger by as much as the turn takes.
CLOCK_SLACK_NS = 1_000_000_000
# Plain integers: an enum's operators cost 1 us each.
_UNSUPPORTED = int(Flag.STREAM | Flag.REPLY_IN_LEASE)
_IDEMPOTENT = int(Flag.IDEMPOTENT)


@dataclass(frozen=True, slots=True)
class Binding:
    """What one layout means to one lane: checked once, used by every request of that layout."""

    key: int
    lane: Lane
    layout: Layout
    rows: int
    input_bytes: int
    copies: tuple[Copy, ...]
    descriptors: Words | None
    needs_look: bool
    policy: int
    latest_n: int


@dataclass(slots=True)
class Payload:
    """What the broker keeps of a request until it is answered; *header* and *frames* only until they are in a slot."""

    binding: Binding
    header: bytes
    frames: Sequence[Frame]


class Intake:
    """Turns messages into requests for the lanes of one server."""

    def __init__(self, lanes: dict[str, Lane], arenas: list[LaneArena], *, max_budget_us: int) -> None:
        self._lanes = lanes
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
        budget_us, flags = route[1], route[6]
        if flags & _UNSUPPORTED or budget_us > self._max_budget_us:
            raise self._not_served(flags, budget_us)
        plan = binding.lane.plan
        if binding.policy or plan.max_age_ns:
            _check_marks(route, binding, now_ns)
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
        )

    def _not_served(self, flags: int, budget_us: int) -> RequestError:
        if flags & _UNSUPPORTED:
            return RequestError(Code.NOT_SUPPORTED, field="flags", expected="no STREAM or REPLY_IN_LEASE", got=Flag(flags))
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
        link = lane.plan.links[0]
        rows = check_inputs(layout.tensors, lane.plan)
        known_outputs = {spec.name for spec in lane.plan.outputs}
        for name in layout.outputs if known_outputs else ():
            if name not in known_outputs:
                known = ", ".join(sorted(known_outputs))
                raise RequestError(Code.BAD_NAME, field="outputs", expected=f"some of {known}", got=name)
        copies = place_inputs(layout.tensors, lane.plan)
        binding = Binding(
            layout.key,
            lane,
            layout,
            rows,
            sum(copy.nbytes for copy in copies),
            copies,
            None if link.static else descriptor_words(copies, link),
            layout.checksum_at >= 0
            or any(t.dtype == DType.BYTES or (layout.finite and t.dtype in FLOATS) for t in layout.tensors),
            int(layout.key_policy),
            1 if layout.key_policy == KeyPolicy.LATEST_ONLY else layout.latest_n,
        )
        if layout.key > 0:
            if len(self._bindings) >= MAX_BINDINGS:
                self._bindings.clear()
            self._bindings[layout.key] = binding
        return binding


def _check_supported(layout: Layout, plan: LanePlan) -> None:
    if layout.latest_n and layout.key_policy != KeyPolicy.LATEST_N:
        expected = f"0 with {layout.key_policy.name}"
        raise RequestError(Code.BAD_PARAM, field="latest_n", expected=expected, got=layout.latest_n)
    if layout.latest_n > plan.backlog:
        expected = f"at most {plan.backlog} (lane.{plan.name}.backlog)"
        raise RequestError(Code.BAD_PARAM, field="latest_n", expected=expected, got=layout.latest_n)
    if any(tensor.place == Place.LEASE for tensor in layout.tensors):
        raise RequestError(Code.NOT_SUPPORTED, field="place", expected="FRAME or INLINE", got="LEASE")


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
        check_payload(checksum, binding.layout.tensors, header, frames)
    for copy in binding.copies:
        tensor = copy.tensor
        source = memoryview(header if copy.frame < 0 else frames[copy.frame])
        if copy.frame >= 0 and len(source) != tensor.nbytes:
            raise RequestError(Code.SIZE_MISMATCH, field=tensor.name, expected=f"{tensor.nbytes} bytes", got=len(source))
        content = source[copy.start : copy.start + copy.nbytes]
        check_content(tensor, content, finite=binding.layout.finite)
