"""From a slot to a reply: the one copy on the way out, and the times that the stages left. Owner: the broker's main thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.arena import LaneArena, read_descriptor, read_name, scalars
from schemas.lease_regions import LeaseRegions
from schemas.leases import place_word
from schemas.plan import STAMP_WORDS, LinkPlan
from schemas.status import Flag
from schemas.templates import ReplyTemplate, TensorForm
from schemas.tensors import DType
from schemas.wire import MAX_INLINE_BYTES, STAGE_TIME
from schemas.wire_tensors import Lease

from .intake import Payload
from .lanes import Lane
from .leases import LeasePool, no_leases
from .life import Request

# Templates kept per lane; outputs of ever new shapes start over.
MAX_TEMPLATES = 256
_MAX_U32 = 0xFFFFFFFF
_FINAL = int(Flag.FINAL)
_REPLY_IN_LEASE = int(Flag.REPLY_IN_LEASE)

Output = tuple[str, int, tuple[int, ...], int, int]  # name, dtype, shape, nbytes, offset


@dataclass(frozen=True, slots=True)
class _Form:
    """How replies with one set of outputs are made: the template, and (offset, nbytes) of what goes inline and into frames.

    *leased* are (offset, nbytes, place word) of what goes into frames of the client's lease.
    """

    template: ReplyTemplate
    inline: tuple[tuple[int, int], ...]
    frames: tuple[tuple[int, int], ...]
    leased: tuple[tuple[int, int, int], ...]


class LaneReplies:
    """Makes the replies of one lane.

    Args:
        leases, regions: what is lent to clients, None where nothing is.
    """

    def __init__(
        self, lane: Lane, arena: LaneArena, leases: LeasePool | None = None, regions: LeaseRegions | None = None
    ) -> None:
        self._leases = leases or no_leases()
        self._lease_regions = regions
        self._plan = lane.plan
        self._link: LinkPlan = lane.plan.links[lane.plan.final_link]
        region = arena.regions[self._link.region]
        self._rows = region.reshape(-1).data
        self._stride = region.shape[1]
        self._descriptors = arena.descriptors[lane.plan.final_link]
        self._error = arena.error
        self._stamps = arena.stamps
        self._one_stamp = scalars(arena.stamps)
        self._stages = len(lane.plan.steps)
        # Steps with nothing to do have no times.
        self._timed = [i for i, step in enumerate(lane.plan.steps) if step.use != "none"]
        self._forms: dict[object, _Form] = {}

    def stamps(self, slots: Sequence[int]) -> list[list[list[int]]]:
        """Return (started_ns, done_ns, batch) of each step of each slot."""
        if len(slots) == 1:
            at = slots[0] * self._stages * STAMP_WORDS
            words = self._one_stamp[at : at + self._stages * STAMP_WORDS].tolist()
            return [[words[i : i + STAMP_WORDS] for i in range(0, len(words), STAMP_WORDS)]]
        rows: list[list[list[int]]] = self._stamps[slots].tolist()
        return rows

    def runs(self, stamps: list[list[int]]) -> list[tuple[int, int, int]]:
        """Return (step, run_ns, batch) of the steps that did something."""
        return [(i, stamps[i][1] - stamps[i][0], stamps[i][2]) for i in self._timed]

    def reply(self, request: Request, stamps: list[list[int]]) -> tuple[bytes, list[bytes]]:
        """Return header and payload frames of a result; both are copies, the slot may be freed."""
        payload = request.payload
        assert isinstance(payload, Payload)
        layout = payload.binding.layout
        form = self._form(request.slot, layout.outputs, layout.output_leases)
        base, rows = request.slot * self._stride, self._rows
        inline = [rows[base + at : base + at + size] for at, size in form.inline]
        backlog_us = min((request.dispatched_ns - request.arrived_ns) // 1000, _MAX_U32)
        header = form.template.header(
            (request.request_id, request.born_us, request.key),
            self._timing(request.dispatched_ns, stamps),
            min(request.retries + request.marks, 255),
            backlog_us,
            inline,
            self._finish_leases(request, form, base) if request.leases else _FINAL,
        )
        return header, [bytes(rows[base + at : base + at + size]) for at, size in form.frames]

    def _finish_leases(self, request: Request, form: _Form, base: int) -> int:
        """Put outputs into their frames, let go of the request's frames, and return the flags that say so."""
        for at, size, word in form.leased:
            assert self._lease_regions is not None, "a pool without regions finds no lease"
            self._lease_regions.view(word, size)[:] = self._rows[base + at : base + at + size]
        return _FINAL | (_REPLY_IN_LEASE if form.leased else 0) | self._leases.settle(request)

    def error(self, slot: int) -> tuple[str, str]:
        """Return (field, message) that a stage left in *slot*."""
        text = self._error[slot].tobytes().decode("ascii", "replace")
        field, _, message = text.partition("\0")
        return field, message.rstrip("\0")

    def stage_name(self, stage: int) -> str:
        """Return the name of the last step before *stage*, where an error came from."""
        return self._plan.steps[min(max(stage - 1, 0), self._stages - 1)].stage

    def _timing(self, before_ns: int, stamps: list[list[int]]) -> bytes:
        rows = bytearray(self._stages * STAGE_TIME.size)
        for index in self._timed:
            began, done, batch = stamps[index]
            queue_us, run_us = max(began - before_ns, 0) // 1000, (done - began) // 1000
            STAGE_TIME.pack_into(rows, index * STAGE_TIME.size, min(queue_us, _MAX_U32), min(run_us, _MAX_U32), batch)
            before_ns = done
        return bytes(rows)

    def _form(self, slot: int, wanted: tuple[str, ...], leases: tuple[Lease | None, ...]) -> _Form:
        if self._link.static:
            form = self._forms.get((wanted, leases))
            return form or self._make((wanted, leases), self._static_tensors(), wanted, leases)
        tensors = self._slot_tensors(slot)
        key = (wanted, leases, tensors)
        return self._forms.get(key) or self._make(key, tensors, wanted, leases)

    def _static_tensors(self) -> tuple[Output, ...]:
        return tuple((t.name, int(t.dtype), t.shape, t.max_bytes, t.offset) for t in self._link.tensors)

    def _slot_tensors(self, slot: int) -> tuple[Output, ...]:
        """Return what is in a slot."""
        words = self._descriptors[slot]
        names = [t.name for t in self._link.tensors] or [read_name(row) for row in words if row[0]]
        return tuple((name, *read_descriptor(words[index])) for index, name in enumerate(names))

    def _make(self, key: object, tensors: Sequence[Output], wanted: tuple[str, ...], leases: tuple[Lease | None, ...]) -> _Form:
        """Build the form of one set of outputs: into a lease where that was asked and it fits, small ones inline, the rest in
        frames."""
        asked = dict(zip(wanted, leases, strict=False))
        inline: list[tuple[int, int]] = []
        frames: list[tuple[int, int]] = []
        leased: list[tuple[int, int, int]] = []
        forms: list[TensorForm] = []
        for name, dtype, shape, size, offset in (t for t in tensors if not wanted or t[0] in wanted):
            lease = asked.get(name)
            if lease is not None and size <= lease.nbytes:
                leased.append((offset, size, place_word(lease.region, lease.frame * self._leases.form.stride)))
                forms.append(TensorForm(name, DType(dtype), shape, size, lease=lease._replace(nbytes=size)))
                continue
            is_inline = size <= MAX_INLINE_BYTES
            (inline if is_inline else frames).append((offset, size))
            forms.append(TensorForm(name, DType(dtype), shape, size, is_inline))
        template = ReplyTemplate(self._plan.name, self._plan.version, forms, self._stages)
        form = _Form(template, tuple(inline), tuple(frames), tuple(leased))
        if len(self._forms) >= MAX_TEMPLATES:
            self._forms.clear()
        self._forms[key] = form
        return form
