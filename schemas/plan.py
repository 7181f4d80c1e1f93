"""The plan: what the configuration and the models come to. Regions, sizes, processes, tensors; computed once at start.

It is written as JSON for every process to read, so all of them agree on each offset. No numpy: the supervisor reads it too.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .tensors import DType, TensorSpec

# Columns of the board: one for each process that lives or is not yet reaped; column 0 is the broker's. An incarnation's low
# byte is its column.
MAX_COLUMNS = 128
MAX_TENSORS = 8
ROW_ALIGN_BYTES = 64
PAGE_BYTES = 4096
WORD_BYTES = 8
DESCRIPTOR_WORDS = 16
ERROR_TEXT_BYTES = 256
STAMP_WORDS = 3
# Hanging is never said of a call that is shorter, whatever the config or the warm-up says.
MIN_HANG_NS = 1_000_000_000
# Why a batch closed, one counter each; behind them, how many rows the batches had.
BATCH_CAUSES = ("full", "no_delay", "delay", "deadline", "alone")
BATCH_ROWS = len(BATCH_CAUSES)
BATCH_WORDS = 8


@dataclass(frozen=True, slots=True)
class LinkTensor:
    """One tensor of a link; the first dimension is rows, -1 any size. *max_bytes* bounds it; *offset* is in the slot's row."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    max_shape: tuple[int, ...]
    max_bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """What one stage hands to the next: rows in shared memory when they are in two processes, scratch of one otherwise.

    *static*: each tensor has its one shape in every slot, so descriptors are neither written nor read. Otherwise a slot's shapes
    and offsets are in its descriptors.
    """

    name: str
    tensors: tuple[LinkTensor, ...]
    row_bytes: int
    shared: bool
    static: bool
    region: int = -1


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One stage of a lane: its name, what it uses (``none`` = nothing to do), and the links it reads and writes."""

    stage: str
    use: str
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class LaneProcess:
    """One process of a lane's cut: which steps it runs (first, one past the last), and the server process that serves it."""

    first_step: int
    end_step: int
    process: int


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """A run of rows in the lane's arena, one for each slot: *offset* and *stride* in bytes."""

    name: str
    offset: int
    stride: int


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """Where a lane's model runs, decided once at start so that every replica agrees.

    *kind* is ``cpu`` or ``cuda``; *level* is that of the log line which tells *reason*; *about* has names and versions of the
    GPU, its driver and its libraries.
    """

    kind: str
    level: str = "info"
    reason: str = ""
    about: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LanePlan:
    """A lane: its limits, links, steps, cut and the layout of its arena.

    *batch_effects* are the model's outputs whose bits depend on the other rows of a batch, each with the largest difference seen;
    None when that is not known.
    """

    name: str
    index: int
    version: str
    platform: str
    model_digest: str
    model_marks: str
    slots: int
    max_rows: int
    max_batch_size: int
    batch_effects: tuple[tuple[str, float], ...] | None
    max_queue_delay_ns: int
    backlog: int
    backlog_bytes: int
    default_budget_us: int
    max_age_ns: int
    inside_ns: int
    idempotent: bool
    hang_limit_ns: int
    max_input_bytes: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    links: tuple[LinkPlan, ...]
    final_link: int
    steps: tuple[StepPlan, ...]
    cut: tuple[LaneProcess, ...]
    regions: tuple[RegionPlan, ...]
    arena_bytes: int
    device: DevicePlan | None = None


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """A kind of worker process: the lanes it serves, and how many replicas of it run."""

    name: str
    lanes: tuple[int, ...]
    replicas: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All that the processes of one server agree on, apart from the config file itself."""

    lanes: tuple[LanePlan, ...]
    processes: tuple[ProcessPlan, ...]

    def to_json(self) -> str:
        """Return the plan as JSON text."""
        return json.dumps(dataclasses.asdict(self))


def align(size: int, to: int) -> int:
    """Return *size* rounded up to a multiple of *to*."""
    return (size + to - 1) // to * to


@dataclass(frozen=True, slots=True)
class WordLayout:
    """Byte offsets of the shared words and headers at the beginning of a lane's arena. All u64, 8-byte aligned.

    generation[slot] and holder[slot]: the broker's and the holder's; held[column][slot], run_pairs[column][slot] and
    batches[column][8], on which a restart in the same column counts on: each column's own process; stamps[slot][stage] =
    (started_ns, done_ns, batch); descriptors[link][slot][tensor][16]; error[slot]: 256 bytes of text.
    """

    generation: int
    holder: int
    held: int
    run_pairs: int
    batches: int
    stamps: int
    descriptors: int
    error: int
    end: int


def word_layout(slots: int, steps: int, links: int) -> WordLayout:
    """Return where each word array of a lane with *slots* slots begins."""
    words = {
        "generation": slots,
        "holder": slots,
        "held": MAX_COLUMNS * slots,
        "run_pairs": MAX_COLUMNS * slots,
        "batches": MAX_COLUMNS * BATCH_WORDS,
        "stamps": slots * steps * STAMP_WORDS,
        "descriptors": links * slots * MAX_TENSORS * DESCRIPTOR_WORDS,
        "error": slots * ERROR_TEXT_BYTES // WORD_BYTES,
    }
    at = 0
    offsets: dict[str, int] = {}
    for name, count in words.items():
        offsets[name] = at
        at = align(at + count * WORD_BYTES, ROW_ALIGN_BYTES)
    return WordLayout(**offsets, end=align(at, PAGE_BYTES))


def place_regions(slots: int, words_end: int, rows: list[tuple[str, int]]) -> tuple[tuple[RegionPlan, ...], int]:
    """Return the regions for (name, row bytes) pairs laid out behind the words, and the arena's whole size in bytes."""
    at = words_end
    regions: list[RegionPlan] = []
    for name, row_bytes in rows:
        stride = align(max(row_bytes, 1), ROW_ALIGN_BYTES)
        regions.append(RegionPlan(name, at, stride))
        at = align(at + stride * slots, PAGE_BYTES)
    return tuple(regions), at


def read_plan(text: str) -> Plan:
    """Return the plan from its JSON text."""
    return plan_of(json.loads(text))


def plan_of(raw: dict[str, Any]) -> Plan:
    """Return the plan from its parsed JSON."""
    return Plan(
        lanes=tuple(_lane(lane) for lane in raw["lanes"]),
        processes=tuple(ProcessPlan(p["name"], tuple(p["lanes"]), p["replicas"]) for p in raw["processes"]),
    )


def load_plan(path: Path) -> Plan:
    """Read the plan that the supervisor wrote to *path*."""
    return read_plan(path.read_text())


def _lane(raw: dict[str, Any]) -> LanePlan:
    """Rebuild one lane's plan: nested values get their types back."""
    nested = {
        "batch_effects": None if raw["batch_effects"] is None else tuple((name, most) for name, most in raw["batch_effects"]),
        "inputs": _specs(raw["inputs"]),
        "outputs": _specs(raw["outputs"]),
        "links": tuple(LinkPlan(**{**row, "tensors": tuple(map(_link_tensor, row["tensors"]))}) for row in raw["links"]),
        "steps": tuple(StepPlan(**row) for row in raw["steps"]),
        "cut": tuple(LaneProcess(**row) for row in raw["cut"]),
        "regions": tuple(RegionPlan(**row) for row in raw["regions"]),
        "device": DevicePlan(**raw["device"]) if raw["device"] else None,
    }
    return LanePlan(**{**raw, **nested})


def _specs(rows: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(row["name"], DType(row["dtype"]), tuple(row["shape"])) for row in rows)


def _link_tensor(row: dict[str, Any]) -> LinkTensor:
    shapes = {"shape": tuple(row["shape"]), "max_shape": tuple(row["max_shape"])}
    return LinkTensor(**{**row, **shapes, "dtype": DType(row["dtype"])})
