"""From a slot to a reply: the one copy on the way out, and the times that the stages left. Owner: the broker's main thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.arena import LaneArena, read_descriptor, read_name, scalars
from schemas.plan import STAMP_WORDS, LinkPlan
from schemas.templates import ReplyTemplate, TensorForm
from schemas.tensors import DType
from schemas.wire import MAX_INLINE_BYTES, STAGE_TIME

from .intake import Payload
from .lanes import Lane
from .life import Request

# Templates kept per lane; outputs of ever new shapes start over.
MAX_TEMPLATES = 256
_MAX_U32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Form:
    """How replies with one set of outputs are made: the template, and (offset, nbytes) of what goes inline and into frames."""

    template: ReplyTemplate
    inline: tuple[tuple[int, int], ...]
    frames: tuple[tuple[int, int], ...]


class LaneReplies:
    """Makes the replies of one lane."""

    def __init__(self, lane: Lane, arena: LaneArena) -> None:
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
        form = self._form(request.slot, payload.binding.layout.outputs)
        base, rows = request.slot * self._stride, self._rows
        inline = [rows[base + at : base + at + size] for at, size in form.inline]
        backlog_us = min((request.dispatched_ns - request.arrived_ns) // 1000, _MAX_U32)
        header = form.template.header(
            (request.request_id, request.born_us, request.key),
            self._timing(request.dispatched_ns, stamps),
            min(request.retries + request.marks, 255),
            backlog_us,
            inline,
        )
        return header, [bytes(rows[base + at : base + at + size]) for at, size in form.frames]

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

    def _form(self, slot: int, wanted: tuple[str, ...]) -> _Form:
        if self._link.static:
            form = self._forms.get(wanted)
            return form or self._make(wanted, self._static_tensors(), wanted)
        tensors = self._slot_tensors(slot)
        key = (wanted, tensors)
        return self._forms.get(key) or self._make(key, tensors, wanted)

    def _static_tensors(self) -> tuple[tuple[str, int, tuple[int, ...], int, int], ...]:
        return tuple((t.name, int(t.dtype), t.shape, t.max_bytes, t.offset) for t in self._link.tensors)

    def _slot_tensors(self, slot: int) -> tuple[tuple[str, int, tuple[int, ...], int, int], ...]:
        """Return (name, dtype, shape, nbytes, offset) of each tensor in a slot."""
        words = self._descriptors[slot]
        names = [t.name for t in self._link.tensors] or [read_name(row) for row in words if row[0]]
        return tuple((name, *read_descriptor(words[index])) for index, name in enumerate(names))

    def _make(self, key: object, tensors: Sequence[tuple[str, int, tuple[int, ...], int, int]], wanted: tuple[str, ...]) -> _Form:
        """Build the form of one set of outputs: small ones inline as long as they fit, the rest in frames."""
        chosen = [t for t in tensors if not wanted or t[0] in wanted]
        forms = [TensorForm(n, DType(d), shape, size, size <= MAX_INLINE_BYTES) for n, d, shape, size, _ in chosen]
        places = [(offset, size) for _, _, _, size, offset in chosen]
        form = _Form(
            ReplyTemplate(self._plan.name, self._plan.version, forms, self._stages),
            tuple(place for place, f in zip(places, forms, strict=True) if f.inline),
            tuple(place for place, f in zip(places, forms, strict=True) if not f.inline),
        )
        if len(self._forms) >= MAX_TEMPLATES:
            self._forms.clear()
        self._forms[key] = form
        return form
