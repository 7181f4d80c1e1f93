"""The pipeline in the caller's own process: the steps, links and batcher of a server's workers, without socket or child.

For a trading or inspection program that wants the same answers as the server gives, bit for bit, and no hop on the way.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from schemas.arena import LaneArena
from schemas.arguments import check_mapping, check_requests, truth, whole_number, writable, wrong_kind
from schemas.arguments import name as a_name
from schemas.arrays import Described, Source, describe, lent_or_copied, read_bytes_tensor
from schemas.config import Config, LaneConfig, load_config
from schemas.hop import Hop, HopKind
from schemas.inputs import Copy, check_content, check_inputs, descriptor_words, place_inputs
from schemas.plan import LanePlan
from schemas.status import Code, Place, RequestError, printable
from schemas.templates import RequestTemplate, TensorForm
from schemas.tensors import DType
from schemas.wire_tensors import WireTensor
from schemas.words import COLUMN_WORDS

from .call_marks import CallMarks
from .describe import describe as describe_config
from .links import Arrays, ScratchLink, SharedLink, make_link
from .runner import LaneRunner
from .steps import Infer, make_step

# Forms of requests that are remembered: names, datatypes and shapes seen before are not checked again.
MAX_FORMS = 1024
_COLUMN = 1  # of the arena; nobody else looks at it here


class Pipeline:
    """The lanes of one config. Belongs to the thread that made it.

    Args:
        config: a config file, or one that is loaded.

    Raises:
        ConfigError: as ``slotline check`` tells it.
    """

    def __init__(self, config: Config | Path | str) -> None:
        if not isinstance(config, Config | Path | str):
            raise wrong_kind("config", "a Config, or the path of a config file", config)
        loaded = config if isinstance(config, Config) else load_config(Path(config))
        fused = dataclasses.replace(loaded, lanes=tuple(map(_fused, loaded.lanes)))
        plan = describe_config(fused)
        self._lanes = {lane.name: _EmbeddedLane(lane, fused.lanes[lane.index]) for lane in plan.lanes}

    def __enter__(self) -> Self:
        """Return the pipeline; it is closed at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the pipeline."""
        self.close()

    def close(self) -> None:
        """Give models and memory back."""
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()

    def infer(self, model: str, inputs: Mapping[str, Any], *, budget_us: int = 0, finite: bool = False) -> dict[str, Any]:
        """Run one request and return its outputs by name, as arrays of the caller's own.

        Args:
            model: the lane's name.
            inputs: name -> array, list of bytes, or Encoded.
            budget_us: 0 = the lane's default.
            finite: refuse NaN and Inf.

        Raises:
            RequestError: what a server would have answered.
        """
        (outcome,) = self.infer_many(model, [inputs], budget_us=budget_us, finite=finite)
        if isinstance(outcome, RequestError):
            raise outcome
        return outcome

    def infer_many(
        self, model: str, inputs: Sequence[Mapping[str, Any]], *, budget_us: int = 0, finite: bool = False
    ) -> list[dict[str, Any] | RequestError]:
        """Run many requests, batched as the lane's config says; return results and errors in order."""
        check_requests(inputs)
        lane = self._lanes.get(a_name(model, "model"))
        if lane is None:
            known = ", ".join(sorted(self._lanes)) or "none: the pipeline is closed"
            raise RequestError(Code.MODEL_NOT_FOUND, field="model", expected=f"one of {known}", got=printable(model))
        budget_us = _checked_budget(budget_us)
        truth(finite, "finite")
        inputs = inputs if isinstance(inputs, Sequence) else list(inputs)
        outcomes: list[dict[str, Any] | RequestError] = []
        for at in range(0, len(inputs), lane.slots):
            outcomes += lane.run(inputs[at : at + lane.slots], budget_us, finite)
        return outcomes


def _fused(lane: LaneConfig) -> LaneConfig:
    """Return *lane* with all its stages in one process: this one."""
    return dataclasses.replace(lane, processes=(lane.stages,), replicas={}, workers=None)


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """What one set of names, datatypes and shapes means to a lane; *sources* says which input each copy takes."""

    copies: tuple[Copy, ...]
    sources: tuple[int, ...]
    descriptors: Any


class _EmbeddedLane:
    """One lane: an arena of this process alone, and the runner."""

    def __init__(self, plan: LanePlan, config: LaneConfig) -> None:
        self.slots = plan.slots
        self._plan = plan
        descriptor = os.memfd_create(f"slotline.{plan.name}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, plan.arena_bytes)
            self._arena = LaneArena(descriptor, plan)
        finally:
            os.close(descriptor)
        self._links = [make_link(self._arena, link, index) for index, link in enumerate(plan.links)]
        steps = [make_step(step, plan, config, self._links) if step.use != "none" else None for step in plan.steps]
        self._steps = steps
        self._runner = self._make_runner()
        self._engines = [step.engine for step in steps if isinstance(step, Infer)]
        for step in steps:
            if isinstance(step, Infer):
                step.adopt(self._arena.memory)
                step.engine.warm_up()
        final = self._links[plan.final_link]
        assert isinstance(final, SharedLink), "the answer has a region even where nobody else reads it"
        self._final = final
        self._input = self._arena.regions[plan.links[0].region]
        self._forms: dict[object, _Form] = {}

    def _make_runner(self) -> LaneRunner:
        marks = CallMarks(self._arena, np.zeros(COLUMN_WORDS, np.uint64), _COLUMN, time.monotonic_ns)
        return LaneRunner(self._plan, self._plan.cut[0], self._steps, self._links, self._arena, marks)

    def _start_over(self) -> None:
        """Forget the requests in hand: Ctrl-C came in the middle of them, and the next call must find none."""
        for engine in self._engines:
            engine.start_over()
        for link in self._links:
            if isinstance(link, ScratchLink):
                for slot in range(self.slots):
                    link.drop(slot)
        self._runner = self._make_runner()

    def close(self) -> None:
        """Give the device back what it has of this lane, before the lane's memory goes."""
        for engine in self._engines:
            engine.close()

    def run(self, inputs: Sequence[Mapping[str, Any]], budget_us: int, finite: bool) -> list[dict[str, Any] | RequestError]:
        """Run at most ``slots`` requests together, request i in slot i."""
        deadline_ns = time.monotonic_ns() + (budget_us or self._plan.default_budget_us) * 1000
        outcomes: list[dict[str, Any] | RequestError | None] = [None] * len(inputs)
        hops: list[Hop] = []
        for slot, one in enumerate(inputs):
            try:
                self._fill(slot, one, finite)
                hops.append((slot, 0, slot, self._plan.index, int(HopKind.WORK), 0, 0, 0, deadline_ns))
            except RequestError as error:
                # Without the way that it came: that would hold this lane, and its memory, until the garbage collector runs.
                outcomes[slot] = error.with_traceback(None)
        try:
            self._serve(hops, outcomes)
        except BaseException:
            self._start_over()
            raise
        return [outcome for outcome in outcomes if outcome is not None]

    def _serve(self, hops: list[Hop], outcomes: list[dict[str, Any] | RequestError | None]) -> None:
        """Run *hops* to their ends and put what comes of each into *outcomes* of its slot."""
        self._runner.add(hops)
        left = len(hops)
        while left:
            self._runner.work(time.monotonic_ns(), _keep)
            if self._runner.is_flying and not self._runner.finished:
                self._runner.wait(_keep)
            finished, self._runner.finished = self._runner.finished, []
            left -= len(finished)
            for hop in finished:
                outcomes[hop[0]] = self._result(hop[0]) if not hop[6] else self._error(hop[0], Code(hop[6]))

    def _fill(self, slot: int, inputs: Mapping[str, Any], finite: bool) -> None:
        """Check one request and put its tensors into *slot*."""
        check_mapping(inputs)
        described = [describe(value, name) for name, value in inputs.items()]
        key = tuple(zip(inputs, (about for about, _ in described), strict=True))
        form = self._forms.get(key) or self._add_form(key)
        row = self._input[slot].data
        for copy, at in zip(form.copies, form.sources, strict=True):
            source: Source = described[at][1]
            content = memoryview(lent_or_copied(source, lend=True))
            if finite or copy.tensor.dtype == DType.BYTES:
                check_content(copy.tensor, content, finite=finite)
            row[copy.offset : copy.offset + copy.nbytes] = content
        if form.descriptors is not None:
            self._arena.descriptors[0, slot] = form.descriptors

    def _add_form(self, key: tuple[tuple[str, Described], ...]) -> _Form:
        # Written as a client would, so that the verifier refuses what it refuses there.
        forms = [
            TensorForm(a_name(name, "inputs"), *about[:3], content_type=writable(about[3], name, Code.BAD_PARAM))
            for name, about in key
        ]
        RequestTemplate(self._plan.name, forms)
        tensors = [WireTensor(name, about[0], about[1], Place.INLINE, about[2]) for name, about in key]
        check_inputs(tensors, self._plan)
        copies = place_inputs(tensors, self._plan)
        link = self._plan.links[0]
        names = [name for name, _ in key]
        sources = tuple(names.index(copy.tensor.name) for copy in copies)
        if len(self._forms) >= MAX_FORMS:
            self._forms.clear()
        form = self._forms[key] = _Form(copies, sources, None if link.static else descriptor_words(copies, link))
        return form

    def _result(self, slot: int) -> dict[str, Any]:
        """Return copies of the slot's outputs."""
        outputs: Arrays = self._final.read(slot)
        return {name: self._copy(slot, name, values) for name, values in outputs.items()}

    def _copy(self, slot: int, name: str, values: Any) -> Any:
        shape = self._final.bytes_shape(slot, name)
        return values.copy() if shape is None else read_bytes_tensor(name, shape, values.data)

    def _error(self, slot: int, code: Code) -> RequestError:
        if code == Code.DEADLINE_EXCEEDED:
            return RequestError(code)
        field, _, message = self._arena.error[slot].tobytes().decode("ascii", "replace").partition("\0")
        return RequestError(code, field=field, message=message.rstrip("\0"))


def _checked_budget(budget_us: object) -> int:
    number = whole_number(budget_us, "budget_us")
    if number < 0:
        raise RequestError(Code.BAD_PARAM, field="budget_us", expected="0 or more", got=number)
    return number


def _keep(_: int) -> None:
    """There is nobody to send to: what is finished is looked at when the runner returns."""
