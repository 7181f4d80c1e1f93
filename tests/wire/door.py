"""The broker's door in one thread: real sockets, Front, Intake, Core, Outbox and Results; only the stages are played.

A message goes in by a DEALER of the same process, its requests go through their slots, and all replies come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import zmq
from builders import DEMO, make_arena, make_plan, no_barrier

from broker.answers import Answers
from broker.core import Core
from broker.front import Front
from broker.intake import Intake
from broker.lanes import Lane
from broker.metrics import Ledger
from broker.outbox import Outbox, mark_packed
from broker.results import Results
from broker.roster import Roster
from schemas.config import parse_config
from schemas.hop import HOP, HopKind
from schemas.layout import Layout
from schemas.messages import Body, Failure, read_message
from schemas.status import Code, Flag

LANES = """
[lane.echo]
slots = 64
max_encoded_bytes = 100_000
backlog = 4096
[lane.ticks]
model = "trading_mlp.onnx"
slots = 64
max_encoded_bytes = 65_536
backlog = 4096
[lane.rows]
model = "trading_mlp.onnx"
slots = 4
max_encoded_bytes = 65_536
max_rows = 2
[lane.qc]
model = "surface_qc.onnx"
slots = 4
max_encoded_bytes = 65_536
max_pixels = 65_536
backlog = 4096
[lane.qc.decode]
use = "image"
color = "grey"
[lane.qc.preprocess]
use = "standardize"
"""
STAGE = 1 << 8 | 1
MESSAGES = 128
MAX_MESSAGE_BYTES = 1 << 20


class Reply(NamedTuple):
    """One reply. *code*: 0 for a result, -1 for what is neither a result nor an error; *field* and *message* of an error."""

    request_id: int
    code: int
    field: str
    message: str
    frames: tuple[bytes, ...]
    body: Body | Layout | None


class Door:
    """One client before one ROUTER. The echo lane answers what it got; the lanes with a model answer MODEL_FAILED."""

    def __init__(self, *, is_control: bool = False) -> None:
        plan = make_plan(LANES)
        config = parse_config(LANES, base=DEMO, source="door.toml").server
        arenas = [make_arena(lane) for lane in plan.lanes]
        self.lanes = [Lane(lane, arena, no_barrier) for lane, arena in zip(plan.lanes, arenas, strict=True)]
        for lane in self.lanes:
            lane.replicas = [[STAGE] for _ in lane.plan.cut]
        self.core = Core(self.lanes, Ledger(), max_in_flight=1024)
        self.core.live.add(STAGE)
        self.intake = Intake({lane.plan.name: lane for lane in self.lanes}, arenas, max_budget_us=config.max_budget_us)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router, self._client = self._pair(zmq.ROUTER, zmq.DEALER, "inproc://door")
        sink, self._stage = self._pair(zmq.PULL, zmq.PUSH, "inproc://sink")
        outbox = Outbox(
            self._router, max_bytes=1 << 24, on_sent=self.core.ledger.ended, on_gone=lambda *_: None, pack=mark_packed
        )
        answers = Answers(self.core, config, epoch=1)
        self.roster = Roster(16)
        self.front = Front(self._router, outbox, self.roster, self.core, answers, None if is_control else self.intake)
        self._results = Results(sink, self.core, arenas, self.front, on_ready=lambda _: None)
        self.takes_requests = not is_control
        self._now_ns = 1_000_000_000

    def _pair(self, bound: int, connected: int, endpoint: str) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
        first, second = self._context.socket(bound), self._context.socket(connected)
        for socket in (first, second):
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.setsockopt(zmq.RCVHWM, 0)
            socket.setsockopt(zmq.LINGER, 0)
        first.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        first.bind(endpoint)
        second.connect(endpoint)
        return first, second

    def ask(self, frames: Sequence[bytes]) -> list[Reply]:
        """Send one message, let everything happen that it causes, and return all replies."""
        self.send(frames)
        while self.front.drain(self._now_ns, MESSAGES):
            self._work()
        self._work()
        return self.replies()

    def admit(self, frames: Sequence[bytes]) -> list[Reply]:
        """Send one message whose requests stay in flight, and return what is answered at once."""
        self.send(frames)
        while self.turn():
            pass
        return self.replies()

    def send(self, frames: Sequence[bytes]) -> None:
        """Send one message."""
        self._client.send_multipart(frames)

    def turn(self) -> bool:
        """Let the broker read for one turn; return True when it was cut short."""
        is_cut_short = self.front.drain(self._now_ns, MESSAGES) == MESSAGES
        self.front.outbox.end_turn()
        return is_cut_short

    def _work(self) -> None:
        """Be the stages: every request that has a slot comes back."""
        self._now_ns += 1000
        for ended in self.core.expired(self._now_ns):
            self._results.answer(ended)
        for lane in self.lanes:
            while jobs := self.core.next_dispatch(lane, self._now_ns, 64):
                for request in jobs:
                    self.intake.fill(request)
                    life_of = (lane.slots.generations[request.slot], request.ticket)
                    code = 0 if lane.plan.name == "echo" else Code.MODEL_FAILED
                    stage = len(lane.plan.steps)
                    hop = (request.slot, *life_of, lane.index, int(HopKind.DONE), stage, int(code), 0, request.deadline_ns)
                    self._stage.send(HOP.pack(*hop))
                self._results.drain_all()
        self.front.outbox.end_turn()

    def replies(self) -> list[Reply]:
        """Return the replies that are there."""
        replies: list[Reply] = []
        while self._client.poll(0):
            frames = self._client.recv_multipart()
            header, *rest = frames[1:] if frames[0] == b"" else frames
            is_packed = rest and read_message(header)[0].flags & Flag.PACKED
            replies += [read_reply(one, ()) for one in (header, *rest)] if is_packed else [read_reply(header, rest)]
        return replies

    def close(self) -> None:
        """Close all sockets."""
        self._context.destroy(linger=0)


def read_reply(header: bytes, frames: Sequence[bytes]) -> Reply:
    """Return the reply that a message is."""
    route, body = read_message(header)
    if isinstance(body, Failure):
        return Reply(route.request_id, int(body.code), body.field, body.message, tuple(frames), body)
    return Reply(route.request_id, 0 if isinstance(body, Layout) else -1, "", "", tuple(frames), body)
