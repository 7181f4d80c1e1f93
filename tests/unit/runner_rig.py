"""A runner over real memory, plans and steps, with a scripted clock: what tests of a lane's part in a process share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from builders import DEMO, make_arena, make_board
from numpy.typing import NDArray
from onnx_files import FLOAT, INT64, node, value, write_model

from schemas.arena import LaneArena, write_descriptor, write_name
from schemas.config import parse_config
from schemas.hop import Hop, HopKind
from schemas.plan import BATCH_CAUSES, LanePlan
from schemas.tensors import DType
from stages.describe import describe
from stages.links import SharedLink, make_link
from stages.runner import CallMarks, LaneRunner
from stages.steps import make_step

TICKS = '[lane.ticks]\nmodel = "trading_mlp.onnx"\nslots = 64\nmax_batch_size = 32\n'
FUNCTION = """
[lane.f]
slots = 64
max_batch_size = 64
[lane.f.decode]
use = "stage_functions:{}"
outputs = [{{ name = "copy", dtype = "UINT8", shape = [-1], max_shape = [64] }}]
"""
FEATURES = np.load(DEMO / "trading_test.npz")["features"].astype(np.float32)
DUE_NS = 1_000_000
STEP_NS = 10


@dataclass
class Clock:
    """Time that goes on by STEP_NS at each look."""

    now_ns: int = 0

    def __call__(self) -> int:
        """Return the time."""
        self.now_ns += STEP_NS
        return self.now_ns


@dataclass
class Run:
    """A runner with its lane's memory, and what it flushed: (time, slots finished by then) at each call."""

    plan: LanePlan
    arena: LaneArena
    runner: LaneRunner
    column: NDArray[np.uint64]
    clock: Clock
    flushed: list[tuple[int, list[int]]] = field(default_factory=list)

    def work(self, hops: Sequence[Hop]) -> dict[int, Hop]:
        """Give it hops and let it work until all came out; return them by slot."""
        self.runner.add(hops)
        for _ in range(1000):
            if len(self.runner.finished) >= len(hops):
                break
            self.turn()
        assert len(self.runner.finished) == len(hops) == len({hop[0] for hop in self.runner.finished})
        return {hop[0]: hop for hop in self.runner.finished}

    def turn(self) -> None:
        """Let it do one batch's worth."""
        self.runner.work(self.clock.now_ns, self._flush)

    def _flush(self, now_ns: int) -> None:
        self.flushed.append((now_ns, [hop[0] for hop in self.runner.finished]))

    def output(self, slot: int) -> dict[str, NDArray[np.generic]]:
        """Return what lies in the lane's last link."""
        return SharedLink(self.arena, self.plan.links[self.plan.final_link], self.plan.final_link).read(slot)

    def error(self, slot: int) -> tuple[str, str]:
        """Return (field, message) in a slot."""
        name, _, message = self.arena.error[slot].tobytes().decode("ascii").partition("\0")
        return name, message.rstrip("\0")


def make_run(text: str, *, base: Path = DEMO, part: int = 0) -> Run:
    """Return a runner for one part of the cut of a lane, with real steps."""
    config = parse_config(text, base=base, source="test.toml")
    plan = describe(config).lanes[0]
    arena, board, clock = make_arena(plan), make_board(), Clock()
    links = [make_link(arena, link, index) for index, link in enumerate(plan.links)]
    mine = plan.cut[part]
    steps = [
        make_step(step, plan, config.lanes[0], links) if mine.first_step <= i < mine.end_step and step.use != "none" else None
        for i, step in enumerate(plan.steps)
    ]
    marks = CallMarks(arena, board.columns[1], 1, clock)
    return Run(plan, arena, LaneRunner(plan, mine, steps, links, arena, marks), board.columns[1], clock)


def closed_by(run: Run) -> dict[str, int]:
    """Return how many batches closed for which cause, and how many rows they had together."""
    counts = run.arena.batches[1].tolist()
    return {name: count for name, count in zip((*BATCH_CAUSES, "rows"), counts, strict=False) if count}


def hop(slot: int, *, flags: int = 0, deadline_ns: int = DUE_NS) -> Hop:
    """Return the hop of a request in *slot*."""
    return (slot, 3, 100 + slot, 0, int(HopKind.WORK), 0, 0, flags, deadline_ns)


def put_bytes(run: Run, slot: int, content: bytes) -> None:
    """Write one UINT8 tensor into a lane that takes any tensors, as the broker does."""
    run.arena.regions[0][slot, : len(content)] = np.frombuffer(content, np.uint8)
    words = run.arena.descriptors[0, slot]
    words[:] = 0
    write_descriptor(words[0], DType.UINT8, (len(content),), nbytes=len(content), offset=0)
    write_name(words[0], b"image")


def put_features(run: Run, count: int) -> list[Hop]:
    """Write the first *count* rows of the market file into as many slots."""
    for slot in range(count):
        run.arena.regions[0][slot, : FEATURES[slot].nbytes] = FEATURES[slot].view(np.uint8)
    return [hop(slot) for slot in range(count)]


def pick_model(path: Path, more: str = "max_batch_size = 32") -> Run:
    """Return a lane whose model picks x[z] of each row, and fails as a whole when one row's z is out of range."""
    write_model(
        path / "pick.onnx",
        [node("GatherElements", ["x", "z"], ["y"], axis=1)],
        [value("x", FLOAT, "batch", 4), value("z", INT64, "batch", 1)],
        [value("y", FLOAT, "batch", 1)],
    )
    run = make_run(f'[lane.p]\nmodel = "pick.onnx"\nslots = 64\n{more}\n', base=path)
    for slot in range(64):
        put_pick(run, slot, slot % 4)
    return run


def put_pick(run: Run, slot: int, index: int) -> None:
    """Write x = slot + (0, .1, .2, .3) and z = index."""
    for tensor, values in zip(
        run.plan.links[0].tensors, (slot + np.arange(4, dtype=np.float32) / 10, np.array([index])), strict=True
    ):
        run.arena.regions[0][slot, tensor.offset : tensor.offset + values.nbytes] = values.view(np.uint8)
