"""The worker process: takes hops from its PULL socket, lets each lane's runner work, sends hops on. Owner: its main thread."""

from __future__ import annotations

import select
import signal
import sys
import time
from pathlib import Path

import numpy as np
import zmq

from schemas import membarrier
from schemas.arena import Board, LaneArena, column_of
from schemas.config import Config, load_config
from schemas.hop import HOP, HOP_DTYPE, Hop, HopKind
from schemas.logs import configure, get_logger
from schemas.plan import LanePlan, LaneProcess, Plan, load_plan
from schemas.spawn import Spawn, die_with_parent, plan_path, worker_endpoint
from schemas.words import STATE, STATE_READY, STATE_STARTED, TURNS

from .faults import fault_hook
from .links import make_link
from .routes import Peer, Routes
from .runner import CallMarks, LaneRunner
from .steps import Infer, RowStep, make_step
from .taking import SlotHands

# Messages taken in one turn; each carries many hops under load, so this only bounds the turn.
MESSAGES_PER_TURN = 64
# A finished hop waits for company no longer than this; 64 JPEGs must not hold back the first.
FLUSH_AFTER_NS = 100_000
# An idle worker looks at the board this often, so that it is known to be alive and finds new peers.
IDLE_POLL_NS = 100_000_000


class LaneWork:
    """One lane in this process: its runner, its hold on slots, and who gets its finished hops."""

    def __init__(self, plan: LanePlan, part: LaneProcess, runner: LaneRunner, hands: SlotHands) -> None:
        self.plan = plan
        self.runner = runner
        self.hands = hands
        is_last = part.end_step == len(plan.steps)
        self.next_process = -1 if is_last else next(p.process for p in plan.cut if p.first_step == part.end_step)


class Worker:
    """A stage process that serves the lanes of its plan."""

    def __init__(self, spawn: Spawn, config: Config, plan: Plan) -> None:
        self._spawn = spawn
        self._board = Board(spawn.board)
        self._column = self._board.columns[column_of(spawn.incarnation)]
        self._column[STATE] = STATE_STARTED
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._pull = self._context.socket(zmq.PULL)
        self._pull.setsockopt(zmq.RCVHWM, 0)
        self._pull.bind(worker_endpoint(spawn.directory, spawn.process, spawn.incarnation))
        self._fault = fault_hook(spawn.name)
        lanes = [plan.lanes[index] for index in plan.processes[spawn.process].lanes]
        self._lanes = {lane.index: self._lane(lane, config) for lane in lanes}
        wanted = {work.next_process for work in self._lanes.values() if work.next_process >= 0}
        self._routes = Routes(self._context, self._board, directory=spawn.directory, incarnation=spawn.incarnation, wanted=wanted)
        self._flushed_ns = 0

    def _lane(self, plan: LanePlan, config: Config) -> LaneWork:
        """Build one lane's part: links, steps, warm-up."""
        arena = LaneArena(self._spawn.arenas[plan.index], plan)
        part = next(p for p in plan.cut if p.process == self._spawn.process)
        links = [make_link(arena, link, index) for index, link in enumerate(plan.links)]
        lane = config.lanes[plan.index]
        steps: list[RowStep | Infer | None] = [
            make_step(step, plan, lane, links) if part.first_step <= i < part.end_step and step.use != "none" else None
            for i, step in enumerate(plan.steps)
        ]
        column = column_of(self._spawn.incarnation)
        marks = CallMarks(self._column, arena.run_pairs[column], plan.index, time.monotonic_ns)
        runner = LaneRunner(plan, part, steps, links, arena, marks)
        self._warm_up(plan, steps, runner)
        hands = SlotHands(arena, self._column, self._board.taken[column], incarnation=self._spawn.incarnation, fault=self._fault)
        return LaneWork(plan, part, runner, hands)

    def _warm_up(self, plan: LanePlan, steps: list[RowStep | Infer | None], runner: LaneRunner) -> None:
        for step in steps:
            if isinstance(step, Infer):
                runs_ns = step.engine.warm_up()
                runner.warmed_up(max(runs_ns.values(), default=0))
                get_logger().info("warmed_up", lane=plan.name, runs_us={b: ns // 1000 for b, ns in runs_ns.items()})

    def run(self) -> None:
        """Say that this process is ready, then serve until it is killed."""
        self._column[STATE] = STATE_READY
        self._routes.sink.socket.send(HOP.pack(0, 0, self._spawn.incarnation, 0, HopKind.READY, 0, 0, 0, 0))
        while True:
            self.turn()

    def turn(self) -> None:
        """Take what is there, do one batch of each lane, send what is finished; wait only when there is nothing to do."""
        self._column[TURNS] += np.uint64(1)
        if not self._take():
            wait_ns = self._may_wait_ns()
            if wait_ns > 0:
                self._wait(wait_ns)
                self._take()
        self._routes.refresh()
        self._flushed_ns = now_ns = time.monotonic_ns()
        for work in self._lanes.values():
            work.runner.work(now_ns, self._flush_if_due)
        self._flush()

    def _may_wait_ns(self) -> int:
        """Return how long this process may sleep: not at all with work to do, else until a held batch must go."""
        wait_ns = IDLE_POLL_NS
        for work in self._lanes.values():
            if work.runner.has_incoming:
                return 0
            wake_ns = work.runner.next_wake_ns()
            if wake_ns is not None:
                wait_ns = min(wait_ns, wake_ns - time.monotonic_ns())
        return wait_ns

    def _wait(self, wait_ns: int) -> None:
        """Sleep until a message comes or the time is over; select knows microseconds where poll knows milliseconds."""
        if wait_ns >= 2_000_000:
            self._pull.poll(wait_ns // 1_000_000)
        elif not self._pull.get(zmq.EVENTS) & zmq.POLLIN:
            select.select([self._pull.fileno()], [], [], wait_ns / 1e9)

    def _take(self) -> bool:
        """Take the hops of all messages that are there; True when there were any."""
        messages: list[bytes] = []
        try:
            while len(messages) < MESSAGES_PER_TURN:
                messages.append(self._pull.recv(zmq.NOBLOCK))
        except zmq.Again:
            pass
        if not messages:
            return False
        hops = np.frombuffer(b"".join(messages), HOP_DTYPE)
        for index, work in self._lanes.items():
            mine = hops if len(self._lanes) == 1 else hops[hops["lane"] == index]
            if len(mine):
                work.runner.add(work.hands.take(mine))
        return True

    def _flush_if_due(self, now_ns: int) -> None:
        if now_ns - self._flushed_ns >= FLUSH_AFTER_NS:
            self._flush()
            self._flushed_ns = now_ns

    def _flush(self) -> None:
        """Send on what is finished: results and errors to the broker, the rest to the next process."""
        for work in self._lanes.values():
            finished = work.runner.finished
            if not finished:
                continue
            work.runner.finished = []
            if work.next_process < 0:
                self._send(work, finished, self._routes.sink)
                continue
            self._send(work, [hop for hop in finished if hop[4] == HopKind.DONE], self._routes.sink)
            self._send_on(work, [hop for hop in finished if hop[4] != HopKind.DONE])

    def _send_on(self, work: LaneWork, hops: list[Hop]) -> None:
        peer = self._routes.pick(work.next_process)
        if peer is None:
            nobody = int(HopKind.NO_REPLICA)
            self._send(work, [(*hop[:4], nobody, *hop[5:]) for hop in hops], self._routes.sink)
        else:
            self._send(work, hops, peer)

    def _send(self, work: LaneWork, hops: list[Hop], peer: Peer) -> None:
        if hops:
            work.hands.let_go(hops, to=peer.incarnation, send=peer.socket.send)
            peer.sent += len(hops)


def run_worker(spawn: Spawn) -> None:
    """Serve as one stage process; ends when it is killed or its supervisor dies."""
    die_with_parent(spawn.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config = load_config(Path(spawn.config), spawn.endpoint)
    configure(spawn.name, config.server.log_level)
    membarrier.register()
    sys.path.append(str(config.base))
    Worker(spawn, config, load_plan(plan_path(spawn.directory))).run()
