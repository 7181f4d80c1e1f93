"""The stages of a lane as objects that a runner calls: one slot at a time, or a batch of slots for inference.

A step reads its source link and writes its target link, nothing else; a peer's or a model's fault is a RequestError.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeAlias

import numpy as np

from schemas.config import LaneConfig, StageConfig
from schemas.logs import get_logger
from schemas.plan import LanePlan, StepPlan
from schemas.status import Code, RequestError, printable

from .decode import decode_image
from .engine import OnnxEngine
from .image_libraries import load_decoders, no_memory
from .image_rules import ImageRules
from .links import Link
from .model_files import check_model
from .postprocess import load_function, real_shapes
from .preprocess import BUILT_IN
from .raw_pixels import raw_pixels

# A user's function that fails on each request is logged this often.
SAY_AGAIN_NS = 10_000_000_000
Shapes: TypeAlias = tuple[tuple[int, ...], ...]


class RowStep(Protocol):
    """A stage that works on one request at a time."""

    def run(self, slot: int) -> None:
        """Do the stage's work on *slot*; raise RequestError when it cannot be done."""


class DecodeImage:
    """An encoded picture, or a raw frame, to pixels."""

    def __init__(self, source: Link, target: Link, lane: LaneConfig) -> None:
        load_decoders()
        self._source, self._target = source, target
        self._rules = ImageRules.of(lane.decode.params, lane.max_pixels)

    def run(self, slot: int) -> None:
        """Decode into the pixel region; a tensor of rank 2 or 3 is a raw frame."""
        (picture,) = self._source.read(slot).values()
        make = decode_image if picture.ndim == 1 else raw_pixels
        try:
            pixels = self._target.buffers(slot)["pixels"].reshape(-1).view(np.uint8)
            shape = make(picture, pixels, self._rules)  # type: ignore[arg-type]
        except MemoryError as error:
            raise no_memory() from error
        self._target.commit(slot, {"pixels": shape})


class Preprocess:
    """Pixels to a model's row, by a built-in function."""

    def __init__(self, source: Link, target: Link, use: str) -> None:
        self._source, self._target = source, target
        self._built_in = BUILT_IN[use]
        self._name = target.plan.tensors[0].name

    def run(self, slot: int) -> None:
        """Write the row of the slot's picture."""
        (pixels,) = self._source.read(slot).values()
        shape = self._built_in.tensor_shape(pixels.shape)
        try:
            row = self._target.buffers(slot)[self._name].reshape(-1)[: int(np.prod(shape))].reshape(shape)
            self._built_in.function(pixels, row[0])  # type: ignore[arg-type]
        except MemoryError as error:
            raise no_memory() from error
        self._target.commit(slot, {self._name: shape})


class Function:
    """A user's function."""

    def __init__(self, source: Link, target: Link, setting: StageConfig, key: str) -> None:
        self._source, self._target = source, target
        self._key = f"{key}.use"
        self._function = load_function(setting.use, key=self._key, config=setting.params)
        self._params = setting.params
        self._declared = {t.name: t.max_shape for t in target.plan.tensors}
        self._said_ns = -SAY_AGAIN_NS

    def run(self, slot: int) -> None:
        """Call the function; whatever it raises is this request's MODEL_FAILED and nobody else's."""
        outputs = self._target.buffers(slot)
        for output in outputs.values():
            # What the function does not write must not be what the slot's last request got: it may be another client's.
            output.fill(0)
        try:
            shapes = real_shapes(self._function(self._source.read(slot), MappingProxyType(outputs), self._params), self._declared)
        except RequestError:
            raise
        # Whatever it raises, SystemExit too, is about this one request.
        except BaseException as error:
            self._say(error)
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            raise RequestError(Code.MODEL_FAILED, message=printable(f"{_text_of(error)} ({where})", 200)) from error
        self._target.commit(slot, shapes, strided=True)

    def _say(self, error: BaseException) -> None:
        """Log the error with its traceback, but not thousands of times: its author needs one."""
        now_ns = time.monotonic_ns()
        if now_ns - self._said_ns >= SAY_AGAIN_NS:
            self._said_ns = now_ns
            get_logger().warning("function_failed", key=self._key, exc_info=error)


def _text_of(error: BaseException) -> str:
    """Return type and text of an exception, whose own text may fail too."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


class Infer:
    """The model: gathers a batch's rows, runs once, hands each slot its rows of the outputs."""

    def __init__(self, source: Link, target: Link, engine: OnnxEngine) -> None:
        self._source, self._target = source, target
        self.engine = engine
        self._names = [spec.name for spec in engine.inputs]
        self.static_key = engine.row_shapes if source.plan.static else None

    def shape_of(self, slot: int) -> tuple[Shapes, int]:
        """Return the trailing shapes of a slot's inputs (equal ones may share a batch) and its rows.

        Raises:
            RequestError: BAD_SHAPE when the model cannot take them, or the inputs differ in rows.
        """
        tensors = self._source.read(slot)
        shapes: list[tuple[int, ...]] = []
        rows = next(iter(tensors[self._names[0]].shape), 0)
        for spec in self.engine.inputs:
            shape = tensors[spec.name].shape if spec.name in tensors else ()
            fits = len(shape) == len(spec.shape) and all(w in (-1, h) for w, h in zip(spec.shape[1:], shape[1:], strict=True))
            if not fits or not 1 <= shape[0] == rows:
                raise RequestError(Code.BAD_SHAPE, field=spec.name, expected=[max(rows, 1), *spec.shape[1:]], got=list(shape))
            shapes.append(shape[1:])
        return tuple(shapes), rows

    def run(self, slots: Sequence[int], rows: Sequence[int], shapes: Shapes) -> list[RequestError | None]:
        """Run one batch. A batch that fails as a whole raises RequestError; else one entry per slot, None = well."""
        views = self.engine.input_views(sum(rows), shapes)
        for name in self._names:
            self._source.gather(name, slots, views[name])
        return self._target.scatter(slots, rows, self.engine.run(sum(rows), shapes))


def make_step(step: StepPlan, plan: LanePlan, lane: LaneConfig, links: Sequence[Link]) -> RowStep | Infer:
    """Return the object for one stage of a lane that has something to do.

    Raises:
        ConfigError: a model, a function or a library is missing; one line with the cure.
    """
    source, target = links[step.source], links[step.target]
    if step.stage == "infer":
        check_model(lane, plan)
        return Infer(source, target, make_engine(lane, max(plan.max_batch_size, plan.max_rows)))
    if step.use == "image":
        return DecodeImage(source, target, lane)
    if step.use in BUILT_IN:
        return Preprocess(source, target, step.use)
    return Function(source, target, getattr(lane, step.stage), f"lane.{lane.name}.{step.stage}")


def make_engine(lane: LaneConfig, max_batch_size: int) -> OnnxEngine:
    """Load the lane's model."""
    assert isinstance(lane.model, Path)
    return OnnxEngine(lane.model, threads=lane.threads, spin=lane.spin is True, max_batch_size=max_batch_size)
