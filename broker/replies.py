"""From a slot to a reply: the one copy on the way out, and the times that the stages left. Owner: the broker's main thread."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.arena import LaneArena, read_descriptor, read_name, scalars
from schemas.layout import Layout
from schemas.lease_regions import LeaseRegions
from schemas.leases import place_word
from schemas.plan import STAMP_WORDS, LinkPlan
from schemas.status import Flag
from schemas.templates import ReplyTemplate, TensorForm
from schemas.tensors import DType
from schemas.wire import MAX_INLINE_BYTES, STAGE_TIME
from schemas.wire_tensors import Lease

from . import accelerator
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

    *leased* are (offset, nbytes, place word) of what goes into frames of the client's lease. *hot* is the same for the
    accelerator, None for what does not all go inline.
    """

    template: ReplyTemplate
    inline: tuple[tuple[int, int], ...]
    frames: tuple[tuple[int, int], ...]
    leased: tuple[tuple[int, int, int], ...]
    hot: tuple[Any, ...] | None


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
        self._hot = accelerator.load()[0]
        self._all_stamps = arena.stamps.reshape(-1).view(np.uint8).data
        self._timed_flags = bytes(i in self._timed for i in range(self._stages))

    def results(self, requests: list[Request]) -> list[tuple[bytes, Sequence[bytes]]]:
        """Return header and payload frames of a result each; all are copies, the slots may be freed."""
        # The answer to a request that names a lease has flags of its own.
        is_plain = not self._leases.count or not any(request.leases for request in requests)
        if self._hot is not None and self._link.static and is_plain:
            first, *others = {_layout(request).outputs for request in requests}
            form = self._form(0, first, ())
            if form.hot is not None and not others:
                return [(header, ()) for header in self._hot.replies(form.hot, requests)]
        return [self._result(*pair) for pair in zip(requests, self._stamps_of(requests), strict=True)]

    def runs(self, slot: int) -> list[tuple[int, int, int]]:
        """Return (step, run_ns, batch) of the steps that did something for *slot*."""
        stamps = self._slot_stamps(slot)
        return [(i, stamps[i][1] - stamps[i][0], stamps[i][2]) for i in self._timed]

    def _stamps_of(self, requests: list[Request]) -> list[list[list[int]]]:
        """Return (started_ns, done_ns, batch) of each step of each request."""
        if len(requests) == 1:
            return [self._slot_stamps(requests[0].slot)]
        rows: list[list[list[int]]] = self._stamps[[request.slot for request in requests]].tolist()
        return rows

    def _slot_stamps(self, slot: int) -> list[list[int]]:
        at = slot * self._stages * STAMP_WORDS
        words = self._one_stamp[at : at + self._stages * STAMP_WORDS].tolist()
        return [words[i : i + STAMP_WORDS] for i in range(0, len(words), STAMP_WORDS)]

    def _result(self, request: Request, stamps: list[list[int]]) -> tuple[bytes, Sequence[bytes]]:
        layout = _layout(request)
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
        return header, tuple([bytes(rows[base + at : base + at + size]) for at, size in form.frames])

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
            static_key = (wanted, leases) if leases else wanted
            form = self._forms.get(static_key)
            return form or self._make(static_key, self._static_tensors(), wanted, leases)
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
        hot = None if frames or leased else self._hot_form(template, inline)
        form = _Form(template, tuple(inline), tuple(frames), tuple(leased), hot)
        if len(self._forms) >= MAX_TEMPLATES:
            self._forms.clear()
        self._forms[key] = form
        return form

    def _hot_form(self, template: ReplyTemplate, inline: Sequence[tuple[int, int]]) -> tuple[Any, ...]:
        """Return what the accelerator must know of a form: the buffers, and where things lie in them."""
        at = template.places()
        copies = b"".join(struct.pack("<3I", to, offset, size) for to, (offset, size) in zip(at.inline, inline, strict=True))
        places = (self._stride, self._stages, at.route, at.timing, at.retries, at.backlog)
        return (at.header, self._rows, self._all_stamps, copies, self._timed_flags, *places)


def _layout(request: Request) -> Layout:
    """Return the layout of a request."""
    payload = request.payload
    assert isinstance(payload, Payload)
    return payload.binding.layout
