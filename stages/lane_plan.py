"""From configuration and models to the plan: links between stages, regions, offsets, the cut into processes. Pure arithmetic.

What a model takes and gives comes in as specs, so no model is loaded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.config import Config, LaneConfig, OutputConfig, StageConfig
from schemas.config_stage import DEEP_PIXEL_FORMATS
from schemas.plan import (
    MAX_TENSORS,
    ROW_ALIGN_BYTES,
    LanePlan,
    LaneProcess,
    LinkPlan,
    LinkTensor,
    Plan,
    ProcessPlan,
    RegionPlan,
    StepPlan,
    align,
    place_regions,
    word_layout,
)
from schemas.status import ConfigError
from schemas.tensors import ITEM_BYTES, DType, TensorSpec, element_count

from .model_files import ModelFiles
from .worker_plan import check_count, join_processes


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What a model takes and gives; the first dimension of each tensor is the batch."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    files: ModelFiles | None = None
    batch_effects: tuple[tuple[str, float], ...] | None = ()


def build_plan(config: Config, models: Mapping[str, ModelSpec]) -> Plan:
    """Return the plan of *config*; *models* holds the specs of each lane that has a model, by lane name.

    Raises:
        ConfigError: stages that do not fit together, naming the key to change.
    """
    processes: list[ProcessPlan] = []
    groups: dict[str, int] = {}
    lanes: list[LanePlan] = []
    for index, lane in enumerate(config.lanes):
        cut = join_processes(lane, index, processes, groups)
        lanes.append(_LaneBuilder(lane, index, models.get(lane.name)).build(cut))
    check_count(processes, config.source)
    return Plan(tuple(lanes), tuple(processes))


class _LaneBuilder:
    """Builds one lane's plan, stage by stage; ``self._links`` grows as stages write something new."""

    def __init__(self, lane: LaneConfig, index: int, model: ModelSpec | None) -> None:
        self._lane = lane
        self._index = index
        self._model = model
        self._links: list[LinkPlan] = []
        self._steps: list[StepPlan] = []

    def build(self, processes: list[int]) -> LanePlan:
        """Return the plan; *processes* are the server processes of the cut's parts."""
        self._links.append(self._input_link())
        at = 0
        for stage in (name for part in self._lane.processes for name in part):
            at = self._add_step(stage, at)
        cut = self._cut(processes)
        links = self._share(cut, at)
        words = word_layout(self._lane.slots, len(self._steps), len(links))
        shared = [link for link in links if link.shared]
        regions, arena_bytes = place_regions(self._lane.slots, words.end, [(link.name, link.row_bytes) for link in shared])
        return self._lane_plan(cut, links, at, regions=regions, arena_bytes=arena_bytes)

    def _lane_plan(
        self,
        cut: tuple[LaneProcess, ...],
        links: tuple[LinkPlan, ...],
        final: int,
        *,
        regions: tuple[RegionPlan, ...],
        arena_bytes: int,
    ) -> LanePlan:
        lane, files = self._lane, self._model.files if self._model else None
        return LanePlan(
            name=lane.name,
            index=self._index,
            version=lane.version,
            platform="onnxruntime_onnx" if lane.model else "slotline",
            model_digest=files.digest if files else "",
            model_marks=files.marks if files else "",
            slots=lane.slots,
            max_rows=lane.max_rows,
            max_batch_size=lane.max_batch_size,
            batch_effects=self._model.batch_effects if self._model else (),
            max_queue_delay_ns=lane.max_queue_delay_microseconds * 1000,
            backlog=lane.backlog,
            backlog_bytes=lane.backlog_bytes,
            default_budget_us=lane.default_budget_us,
            max_age_ns=lane.max_age_us * 1000,
            inside_ns=(lane.inside_us or 0) * 1000,
            idempotent=lane.idempotent,
            hang_limit_ns=lane.hang_limit_ms * 1_000_000,
            max_input_bytes=links[0].row_bytes,
            inputs=tuple(TensorSpec(t.name, t.dtype, t.shape) for t in links[0].tensors),
            outputs=tuple(TensorSpec(t.name, t.dtype, t.shape) for t in links[final].tensors),
            links=links,
            final_link=final,
            steps=tuple(self._steps),
            cut=cut,
            regions=regions,
            arena_bytes=arena_bytes,
        )

    def _key(self, name: str) -> str:
        return f"lane.{self._lane.name}.{name}"

    # --- links -----------------------------------------------------------------------------------------------------------

    def _input_link(self) -> LinkPlan:
        """What the broker writes: the model's own inputs, an encoded picture, or any tensors when the lane has no model."""
        limit = self._lane.max_encoded_bytes
        if self._lane.decode.use == "image":
            name = self._model.inputs[0].name if self._model else "image"
            return _open_link("input", (TensorSpec(name, DType.ENCODED, (1,)),), limit)
        if self._model is None or self._lane.decode.is_user_function or self._lane.preprocess.is_user_function:
            return LinkPlan("input", (), limit, shared=True, static=False)
        link = self._batch_link("input", self._model.inputs, limit)
        if link.row_bytes > limit:
            raise ConfigError(
                f"{self._key('max_encoded_bytes')}: {limit} is less than one request of this model: {link.row_bytes}"
            )
        return link

    def _batch_link(self, name: str, specs: tuple[TensorSpec, ...], limit: int) -> LinkPlan:
        """Rows of a model's tensors: static when nothing but the batch varies and a request is one row."""
        if len(specs) > MAX_TENSORS:
            raise ConfigError(f"{self._key('model')}: has {len(specs)} tensors on one side; expected at most {MAX_TENSORS}")
        # Tensors without elements have no bytes that a static link could lend.
        fixed = all(dim > 0 for spec in specs for dim in spec.shape[1:]) and all(spec.dtype in ITEM_BYTES for spec in specs)
        if self._lane.max_rows == 1 and fixed:
            return _fixed_link(name, [(s.name, s.dtype, (1, *s.shape[1:]), (1, *s.shape[1:])) for s in specs], static=True)
        shaped = tuple(TensorSpec(s.name, s.dtype, (-1, *s.shape[1:])) for s in specs)
        if fixed:
            rows = self._lane.max_rows
            limit = sum(align(rows * _bytes(s.dtype, s.shape[1:]), ROW_ALIGN_BYTES) for s in specs)
        return _open_link(name, shaped, limit)

    def _add_step(self, stage: str, source: int) -> int:
        """Plan one stage that reads link *source*; return the link that it leaves for the next."""
        if stage == "infer":
            assert self._model is not None
            self._check_model_inputs(self._links[source])
            target = self._batch_link("scores", self._model.outputs, self._lane.max_output_bytes)
            return self._put(StepPlan("infer", "model", source, len(self._links)), target)
        setting: StageConfig = getattr(self._lane, stage)
        if setting.use in ("tensor", "none"):
            self._steps.append(StepPlan(stage, "none", source, source))
            return source
        return self._put(StepPlan(stage, setting.use, source, len(self._links)), self._written_by(stage, setting))

    def _put(self, step: StepPlan, link: LinkPlan) -> int:
        self._steps.append(step)
        self._links.append(link)
        return step.target

    def _written_by(self, stage: str, setting: StageConfig) -> LinkPlan:
        """Return the link that a stage with something to do writes."""
        name = {"decode": "pixels", "preprocess": "row", "postprocess": "reply"}[stage]
        if setting.is_user_function:
            if not setting.outputs:
                raise ConfigError(f"{self._key(stage + '.outputs')}: missing: say what {setting.use} writes (name, dtype, shape)")
            return _declared_link(name, setting.outputs)
        if setting.use == "image":
            return self._pixels_link(name, setting.params)
        return self._standardized_link(name)

    def _pixels_link(self, name: str, params: Mapping[str, object]) -> LinkPlan:
        """Room for the largest picture: uint8, or uint16 where the lane says depth 16."""
        is_grey = params["color"] == "grey"
        deep = params["depth"] == 16
        if deep and not (is_grey and params["pixel_format"] in DEEP_PIXEL_FORMATS):
            raise ConfigError(
                f'{self._key("decode.depth")}: 16 keeps grey values of more than 8 bits: set color = "grey" and pixel_format '
                f"to one of {', '.join(DEEP_PIXEL_FORMATS)}"
            )
        channels = () if is_grey else (3,)
        shape, largest = (-1, -1, *channels), (self._lane.max_pixels, 1, *channels)
        return _fixed_link(name, [("pixels", DType.UINT16 if deep else DType.UINT8, shape, largest)], static=False)

    def _standardized_link(self, name: str) -> LinkPlan:
        spec = self._model.inputs[0] if self._model else TensorSpec("image", DType.FP32, (-1, 1, -1, -1))
        fits = spec.dtype == DType.FP32 and len(spec.shape) == 4 and spec.shape[1] in (1, -1)
        made = self._lane.decode.params
        if not fits or self._lane.decode.use != "image" or (made["color"], made["depth"]) != ("grey", 8):
            raise ConfigError(
                f'{self._key("preprocess.use")}: "standardize" turns grey pixels of 8 bits into FP32 [rows, 1, height, width]: '
                f'set [{self._key("decode")}] use = "image", color = "grey", and a model with such an input '
                f"(this one takes {spec.dtype.name} {list(spec.shape)})"
            )
        return _fixed_link(name, [(spec.name, DType.FP32, (1, 1, -1, -1), (1, 1, self._lane.max_pixels, 1))], static=False)

    def _check_model_inputs(self, link: LinkPlan) -> None:
        """Refuse a cut where the model would read tensors that no stage makes."""
        assert self._model is not None
        have = {tensor.name: tensor for tensor in link.tensors}
        for spec in self._model.inputs:
            tensor = have.get(spec.name)
            if link.name == "input" and not link.tensors:
                continue
            if tensor is None or tensor.dtype != spec.dtype:
                came = ", ".join(f"{t.name} {t.dtype.name}" for t in link.tensors)
                raise ConfigError(
                    f"{self._key('preprocess.use')}: the model needs {spec.name} {spec.dtype.name} {list(spec.shape)}, "
                    f"the stages before it give {came}: choose a preprocess that makes it"
                )

    # --- the cut ---------------------------------------------------------------------------------------------------------

    def _cut(self, processes: list[int]) -> tuple[LaneProcess, ...]:
        cut: list[LaneProcess] = []
        at = 0
        for stages, process in zip(self._lane.processes, processes, strict=True):
            cut.append(LaneProcess(at, at + len(stages), process))
            at += len(stages)
        return tuple(cut)

    def _share(self, cut: tuple[LaneProcess, ...], final: int) -> tuple[LinkPlan, ...]:
        """Give a region to each link that two processes see: the input, the answer, and what crosses the cut."""

        def process_of(step: int) -> int:
            return next(i for i, part in enumerate(cut) if part.first_step <= step < part.end_step)

        crossing = {0, final}
        for target in range(1, len(self._links)):
            users = {process_of(i) for i, s in enumerate(self._steps) if s.use != "none" and target in (s.source, s.target)}
            if len(users) > 1:
                crossing.add(target)
        links: list[LinkPlan] = []
        regions = 0
        for index, link in enumerate(self._links):
            shared = index in crossing
            links.append(
                LinkPlan(
                    link.name, link.tensors, link.row_bytes, shared=shared, static=link.static, region=regions if shared else -1
                )
            )
            regions += shared
        return tuple(links)


def _bytes(dtype: DType, shape: tuple[int, ...]) -> int:
    return ITEM_BYTES[dtype] * element_count(shape)


def _open_link(name: str, specs: tuple[TensorSpec, ...], limit: int) -> LinkPlan:
    """A link whose tensors lie one behind the other as they come; *limit* bounds their sum in bytes."""
    tensors = tuple(LinkTensor(s.name, s.dtype, s.shape, (), limit, 0) for s in specs)
    return LinkPlan(name, tensors, limit, shared=True, static=False)


def _fixed_link(name: str, rows: list[tuple[str, DType, tuple[int, ...], tuple[int, ...]]], *, static: bool) -> LinkPlan:
    """A link with a place for each tensor's largest shape; rows are (name, dtype, shape, largest shape)."""
    tensors: list[LinkTensor] = []
    at = 0
    for tensor, dtype, shape, largest in rows:
        size = _bytes(dtype, largest)
        tensors.append(LinkTensor(tensor, dtype, shape, largest, size, at))
        at = align(at + size, ROW_ALIGN_BYTES)
    return LinkPlan(name, tuple(tensors), at, shared=True, static=static)


def _declared_link(name: str, outputs: tuple[OutputConfig, ...]) -> LinkPlan:
    """A link that a user's function writes, as its config declares it."""
    tensors: list[LinkTensor] = []
    at = 0
    for out in outputs:
        largest = out.max_shape or out.shape
        size = out.max_bytes if out.dtype == DType.BYTES else _bytes(out.dtype, largest)
        tensors.append(LinkTensor(out.name, out.dtype, out.shape, largest, size, at))
        at = align(at + size, ROW_ALIGN_BYTES)
    static = all(-1 not in out.shape and out.dtype != DType.BYTES for out in outputs)
    return LinkPlan(name, tuple(tensors), at, shared=True, static=static)
