"""The worker process: takes hops from its PULL socket, lets each lane's runner work, sends hops on. Owner: its main thread."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

import zmq

from schemas import membarrier
from schemas.arena import Board, LaneArena, Words, scalars
from schemas.config import Config, load_config
from schemas.hop import HOP, Hop, HopKind
from schemas.lease_regions import LeaseRegions
from schemas.leases import RegionForm
from schemas.logs import configure, get_logger
from schemas.plan import LanePlan, LaneProcess, Plan, load_plan
from schemas.spawn import Spawn, die_with_parent, plan_path, worker_endpoint
from schemas.words import TURNS, column_of

from .call_marks import CallMarks
from .device import Device
from .device_event import say_selected, show_bytes
from .faults import fault_hook
from .faulty_marks import FaultyMarks
from .lease_links import LeasedInput
from .links import Link, make_link
from .memory_limit import limit_memory
from .postprocess import prefer_modules_in
from .routes import Peer, Routes
from .runner import LaneRunner
from .spin import may_spin, usable_cores
from .steps import Infer, RowStep, make_step
from .taking import SlotHands

# Messages taken in one turn; each carries many hops under load, so this only bounds the turn.
MESSAGES_PER_TURN = 64
# A finished hop waits for company no longer than this; 64 JPEGs must not hold back the first.
FLUSH_AFTER_NS = 100_000
# An idle worker looks at the board this often, so that it is known to be alive and finds new peers.
IDLE_POLL_NS = 100_000_000

# Plain integers: an operator of an enum costs more than the call whose result it looks at.
_POLLIN = int(zmq.POLLIN)
_DONE = int(HopKind.DONE)


class LaneWork:
    """One lane in this process: its runner, its hold on slots, and who gets its finished hops."""

    def __init__(self, plan: LanePlan, part: LaneProcess, runner: LaneRunner, hands: SlotHands, holder: Words) -> None:
        self.plan = plan
        self.holder = holder
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
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._pull = self._context.socket(zmq.PULL)
        self._pull.setsockopt(zmq.RCVHWM, 0)
        self._pull.setsockopt(zmq.RCVTIMEO, IDLE_POLL_NS // 1_000_000)
        self._pull.bind(worker_endpoint(spawn.directory, spawn.process, spawn.incarnation))
        self._fault = fault_hook(spawn.name)
        self._devices: list[Device] = []
        form = RegionForm(config.leases.frames, config.leases.frame_bytes)
        self._lease_regions = LeaseRegions(spawn.leases, form, writable=False) if spawn.leases else None
        lanes = [plan.lanes[index] for index in plan.processes[spawn.process].lanes]
        self._lanes = {lane.index: self._lane(lane, config) for lane in lanes}
        wanted = {work.next_process for work in self._lanes.values() if work.next_process >= 0}
        self._routes = Routes(self._context, self._board, directory=spawn.directory, wanted=wanted)
        self._lane_list = list(self._lanes.values())
        # The words that say what runs name one lane, so with several nothing of one is on a device while another works.
        self._is_shared = len(self._lane_list) > 1
        self._words = scalars(self._column)
        self._spins = may_spin(config, plan, spawn.process, usable_cores())
        self._turns = 0
        self._flushed_ns = 0

    def _lane(self, plan: LanePlan, config: Config) -> LaneWork:
        """Build one lane's part: links, steps, warm-up."""
        arena = LaneArena(self._spawn.arenas[plan.index], plan)
        part = next(p for p in plan.cut if p.process == self._spawn.process)
        links: list[Link] = [make_link(arena, link, index) for index, link in enumerate(plan.links)]
        if self._lease_regions is not None:
            links[0] = LeasedInput(arena, plan.links[0], self._lease_regions)
        lane = config.lanes[plan.index]
        steps: list[RowStep | Infer | None] = [
            make_step(step, plan, lane, links) if part.first_step <= i < part.end_step and step.use != "none" else None
            for i, step in enumerate(plan.steps)
        ]
        column = column_of(self._spawn.incarnation)
        marks = (
            CallMarks(arena, self._column, column, time.monotonic_ns)
            if self._fault is None
            else FaultyMarks(arena, self._column, column, faults=self._fault, source=links[0])
        )
        runner = LaneRunner(plan, part, steps, links, arena, marks)
        for step in steps:
            if isinstance(step, Infer):
                step.adopt(arena.memory)
        self._warm_up(plan, steps, runner)
        hands = SlotHands(arena, self._column, incarnation=self._spawn.incarnation, fault=self._fault)
        return LaneWork(plan, part, runner, hands, arena.holder)

    def _warm_up(self, plan: LanePlan, steps: list[RowStep | Infer | None], runner: LaneRunner) -> None:
        for step in steps:
            if isinstance(step, Infer):
                runs_ns = step.engine.warm_up()
                runner.warmed_up(max(runs_ns.values(), default=0))
                if plan.batch_effects:
                    get_logger().warning("batch_dependent", lane=plan.name, outputs=dict(plan.batch_effects))
                get_logger().info("warmed_up", lane=plan.name, runs_us={b: ns // 1000 for b, ns in runs_ns.items()})
                say_selected(plan, step.engine.device, runs_ns)
                self._devices.append(step.engine.device)
                show_bytes(self._column, self._devices)

    def run(self) -> None:
        """Say that this process is ready, then serve until it is killed."""
        self._routes.sink.socket.send(HOP.pack(0, 0, self._spawn.incarnation, 0, HopKind.READY, 0, 0, 0, 0))
        while True:
            self.turn()

    def turn(self) -> None:
        """Take what is there, do one batch of each lane, send what is finished; wait only when there is nothing to do."""
        self._turns += 1
        self._words[TURNS] = self._turns
        wait_ns = self._may_wait_ns()
        if wait_ns == IDLE_POLL_NS:
            self._take(self._receive())
        elif self._has_message() or self._wait(wait_ns):
            self._take(self._pull.recv(zmq.NOBLOCK))
        self._routes.refresh()
        self._flushed_ns = now_ns = time.monotonic_ns()
        for work in self._lane_list:
            work.runner.work(now_ns, self._flush_if_due)
            while self._is_shared and work.runner.is_flying:
                work.runner.wait(self._flush_if_due)
        self._flush()

    def _may_wait_ns(self) -> int:
        """Return how long this process may sleep: not at all with work to do, else until a held batch must go."""
        wait_ns = IDLE_POLL_NS
        for work in self._lane_list:
            if work.runner.has_incoming:
                return 0
            wake_ns = work.runner.next_wake_ns()
            if wake_ns is not None:
                wait_ns = min(wait_ns, wake_ns - time.monotonic_ns())
        return wait_ns

    def _has_message(self) -> bool:
        return bool(int(self._pull.get(zmq.EVENTS)) & _POLLIN)

    def _wait(self, wait_ns: int) -> bool:
        """Sleep until a message comes (True) or the time is over; select knows microseconds where poll knows milliseconds."""
        if wait_ns <= 0 or self._spins:
            return False
        if wait_ns >= 2_000_000:
            return bool(self._pull.poll(wait_ns // 1_000_000))
        select.select([self._pull.fileno()], [], [], wait_ns / 1e9)
        return self._has_message()

    def _receive(self) -> bytes:
        """Sleep until a message comes and return it, empty when the time is over. Each look at the socket is two system calls,
        and this way there are the fewest."""
        if self._spins:
            self._spin()
        try:
            return self._pull.recv(zmq.NOBLOCK if self._spins else 0)
        except zmq.Again:
            return b""

    def _spin(self) -> None:
        """Look for a message until one comes, or an idle worker must look at the board; between two looks whoever waits for this
        core gets it. Not by time.sleep(0), which takes 60 us.
        """
        until_ns = time.monotonic_ns() + IDLE_POLL_NS
        while not self._has_message() and time.monotonic_ns() < until_ns:
            os.sched_yield()

    def _take(self, message: bytes) -> None:
        """Take the hops of *message* and of all that lie behind it."""
        messages = [message]
        while len(messages) < MESSAGES_PER_TURN and self._has_message():
            messages.append(self._pull.recv(zmq.NOBLOCK))
        hops: list[Hop] = list(HOP.iter_unpack(b"".join(messages)))
        if len(self._lane_list) == 1:
            work = self._lane_list[0]
            work.runner.add(work.hands.take(hops))
            return
        for index, work in self._lanes.items():
            mine = [hop for hop in hops if hop[3] == index]
            if mine:
                work.runner.add(work.hands.take(mine))

    def _flush_if_due(self, now_ns: int) -> None:
        if now_ns - self._flushed_ns >= FLUSH_AFTER_NS:
            self._flush()
            self._flushed_ns = now_ns

    def _flush(self) -> None:
        """Send on what is finished: results and errors to the broker, the rest to the next process."""
        for work in self._lane_list:
            finished = work.runner.finished
            if not finished:
                continue
            work.runner.finished = []
            if work.next_process < 0:
                self._send(work, finished, self._routes.sink)
                continue
            done = [hop for hop in finished if hop[4] == _DONE]
            self._send(work, done, self._routes.sink)
            if len(done) < len(finished):
                self._send_on(work, [hop for hop in finished if hop[4] != _DONE] if done else finished)

    def _send_on(self, work: LaneWork, hops: list[Hop]) -> None:
        peer = self._routes.pick(work.next_process, work.holder)
        if peer is None:
            nobody = int(HopKind.NO_REPLICA)
            self._send(work, [(*hop[:4], nobody, *hop[5:]) for hop in hops], self._routes.sink)
        else:
            self._send(work, hops, peer)

    def _send(self, work: LaneWork, hops: list[Hop], peer: Peer) -> None:
        if hops:
            work.hands.let_go(hops, to=peer.incarnation, send=peer.socket.send)


def run_worker(spawn: Spawn) -> None:
    """Serve as one stage process; ends when it is killed or its supervisor dies."""
    die_with_parent(spawn.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    config = load_config(Path(spawn.config), spawn.endpoint)
    configure(spawn.name, spawn.log_level)
    membarrier.register()
    prefer_modules_in(config.base)
    plan = load_plan(plan_path(spawn.directory))
    worker = Worker(spawn, config, plan)
    limit_memory(config, plan, spawn.process)
    worker.run()
