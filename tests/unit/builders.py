"""What tests of the broker's core and of the stages need and are not about: plans, memory, lanes, requests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.core import Core
from broker.endings import Ended
from broker.lanes import Lane
from broker.life import Client, Request
from broker.metrics import Ledger
from schemas.arena import Board, LaneArena, holder_word
from schemas.config import parse_config
from schemas.hop import HopKind
from schemas.plan import LanePlan, Plan
from schemas.words import BOARD_BYTES
from stages.engine import OnnxEngine
from stages.lane_plan import ModelSpec, build_plan

DEMO = Path(__file__).parents[2] / "stages" / "demo"
# No model and nothing to do, in two processes: the least in which a slot changes hands between stages.
ECHO = """
[lane.echo]
slots = {slots}
max_encoded_bytes = 64
max_batch_size = 4
processes = [["decode"], ["preprocess", "postprocess"]]
replicas = {{ decode = {replicas[0]}, preprocess = {replicas[1]} }}
{more}
"""
FIRST, SECOND = 1 << 8 | 1, 2 << 8 | 2


def make_plan(text: str, *, base: Path = DEMO) -> Plan:
    """Return the plan of a config text; models are loaded for what they take and give."""
    config = parse_config(text, base=base, source="test.toml")
    engines = {lane.name: OnnxEngine(lane.model, max_batch_size=1) for lane in config.lanes if lane.model is not None}
    return build_plan(config, {name: ModelSpec(engine.inputs, engine.outputs) for name, engine in engines.items()})


def echo_plan(*, slots: int = 4, replicas: tuple[int, int] = (1, 1), more: str = "") -> LanePlan:
    """Return the plan of an echo lane in two processes; *more* are lines of its table."""
    return make_plan(ECHO.format(slots=slots, replicas=replicas, more=more)).lanes[0]


def memory(size: int) -> int:
    """Return the descriptor of *size* zeroed bytes."""
    descriptor = os.memfd_create("slotline.test")
    os.ftruncate(descriptor, size)
    return descriptor


def make_arena(plan: LanePlan) -> LaneArena:
    """Return an arena over memory of its own."""
    descriptor = memory(plan.arena_bytes)
    try:
        return LaneArena(descriptor, plan)
    finally:
        os.close(descriptor)


def make_board() -> Board:
    """Return a board over memory of its own."""
    descriptor = memory(BOARD_BYTES)
    try:
        return Board(descriptor)
    finally:
        os.close(descriptor)


def no_barrier() -> None:
    """Stand for the memory barrier where everything runs in one thread."""


def make_request(client: Client, request_id: int, lane: Lane | None = None, **values: Any) -> Request:
    """Return a request of one row and 8 bytes, due in a second, that may run twice."""
    made = Request(0, client, request_id, lane, 1_000_000_000, 0, None, 8, idempotent=True)  # type: ignore[arg-type]
    for name, value in values.items():
        assert hasattr(made, name)
        setattr(made, name, value)
    return made


@dataclass
class Bench:
    """A core with one echo lane, and stand-ins for its shell and stages.

    Incarnation FIRST serves the first process, SECOND the second.
    """

    lane: Lane
    arena: LaneArena
    core: Core
    client: Client

    def admit(self, request_id: int, **values: Any) -> Request:
        """Have a request admitted."""
        request = make_request(values.pop("client", self.client), request_id, self.lane, **values)
        self.core.ledger.received += 1
        assert self.core.admit(request) is None
        return request

    def dispatch(self, now_ns: int = 0, limit: int = 100) -> list[Request]:
        """Send what may go to the first process; a request that goes to a later stage is sent to its process."""
        requests = self.core.next_dispatch(self.lane, now_ns, limit)
        for request in requests:
            taker = self.lane.replicas[self.lane.process_of(request.stage)][0]
            self.lane.slots.hand_over([request.slot], taker)
        return requests

    def held(self, request_id: int, holder: int = FIRST, **values: Any) -> Request:
        """Have a request admitted, dispatched and taken by *holder*."""
        request = self.admit(request_id, **values)
        self.dispatch()
        self.take(request.slot, holder)
        return request

    def take(self, slot: int, holder: int) -> None:
        """Have *holder* take a slot."""
        self.arena.held[holder & 0xFF, slot] = 1
        self.arena.holder[slot] = holder_word(holder, holder)

    def let_go(self, slot: int, holder: int) -> None:
        """Have *holder* forget a slot."""
        self.arena.held[holder & 0xFF, slot] = 0

    def call(self, holder: int, *requests: Request) -> tuple[int, int]:
        """Have *holder* be in a call that covers *requests*; return what its column says of it."""
        pairs = [request.slot << 32 | self.lane.slots.generations[request.slot] for request in requests]
        self.arena.run_pairs[holder & 0xFF, : len(pairs)] = pairs
        return (0, len(pairs))

    def come_back(self, request: Request, *, code: int = 0, kind: int = HopKind.DONE, stage: int = 3) -> Request | Ended | None:
        """Have the hop of *request* come back to the broker."""
        slot = request.slot
        life_of = (self.lane.slots.generations[slot], request.ticket)
        return self.core.complete(self.lane, slot, life_of, kind=kind, stage=stage, code=code)

    def die(self, incarnation: int, call: tuple[int, int] | None = None) -> list[Ended]:
        """Reap *incarnation*."""
        return self.core.reaped(incarnation, call)

    def balanced(self) -> bool:
        """Return the ledger's own verdict."""
        return bool(self.core.ledger.snapshot(self.core.in_flight)["balanced"])


def make_bench(*, slots: int = 4, max_in_flight: int = 100, is_served: bool = True, more: str = "") -> Bench:
    """Return a core with an echo lane, served by FIRST and SECOND unless *is_served* is false."""
    plan = echo_plan(slots=slots, more=more)
    arena = make_arena(plan)
    lane = Lane(plan, arena, no_barrier)
    core = Core([lane], Ledger(), max_in_flight=max_in_flight)
    if is_served:
        core.live |= {FIRST, SECOND}
        lane.replicas = [[FIRST], [SECOND]]
    return Bench(lane, arena, core, Client(b"client"))


def codes(ended: list[Ended]) -> Mapping[int, str]:
    """Return the code's name of each request that ended, by the client's id."""
    return {end.request.request_id: end.code.name for end in ended}
