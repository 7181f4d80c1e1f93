"""The broker process: owns the sockets and the clock, and turns the core's decisions into messages. Owner: its main thread."""

from __future__ import annotations

import select
import signal
import time
from pathlib import Path

import zmq

from schemas import membarrier
from schemas.arena import Board, LaneArena
from schemas.config import Config, load_config
from schemas.logs import configure, get_logger
from schemas.plan import Plan, load_plan
from schemas.spawn import Spawn, die_with_parent, plan_path, sink_endpoint
from schemas.status import ConfigError
from schemas.words import HEAD_BEAT_NS, HEAD_EPOCH

from .alarms import Alarms
from .answers import Answers
from .channel import Channel
from .core import Core
from .crew import Crew
from .curve import Keeper
from .dispatch import Dispatcher
from .front import Front
from .incarnations import Incarnations
from .intake import Intake
from .lanes import Lane
from .lending import Lending
from .life import Client
from .limits import limit_memory, raise_descriptor_limit
from .metrics import Ledger
from .outbox import Outbox, mark_packed
from .results import Results
from .roster import Roster
from .sockets import REBIND_S, bind, front_router, seed_routing_ids, sink_pull

# One turn takes so much from each socket, so that none waits for long while another is busy.
MESSAGES_PER_TURN = 128
DISPATCH_PER_TURN = 256
# How often lost slots and hanging processes are looked for; while nothing is in a slot, much more rarely; while replies wait for
# a client that was full, more often: it may have read.
TICK_NS = 20_000_000
IDLE_TICK_NS = 200_000_000
RETRY_NS = 2_000_000
_POLLIN = int(zmq.POLLIN)  # an enum's operator costs more than the call before it
# Bits of the sockets that have something to read.
_SINK, _FRONT, _CONTROL, _CHANNEL, _KEEPER, _LEASES = 1, 2, 4, 8, 16, 32
_ALL = _SINK | _FRONT | _CONTROL | _CHANNEL | _KEEPER | _LEASES


class Server:
    """The broker of one epoch."""

    def __init__(self, spawn: Spawn, config: Config, plan: Plan) -> None:
        self._config = config
        self._rebinds = spawn.rebinds
        self._plan = plan
        self._board = Board(spawn.board)
        self._board.head[HEAD_EPOCH] = spawn.epoch
        self._arenas = [LaneArena(fd, lane) for fd, lane in zip(spawn.arenas, plan.lanes, strict=True)]
        self._channel = Channel(spawn.channel)
        seed_routing_ids()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._keeper = None if config.curve is None else Keeper(self._context, config.curve)
        self._sink = sink_pull(self._context, sink_endpoint(spawn.directory, spawn.epoch))
        self._lanes = [self._lane(i) for i in range(len(plan.lanes))]
        self._lending = Lending(spawn, config)
        leases, regions = self._lending.pool, self._lending.regions
        self._core = Core(self._lanes, Ledger(), max_in_flight=config.server.max_in_flight, leases=leases)
        self._endings = self._core.endings
        self._dispatcher = Dispatcher(self._context, spawn.directory)
        answers = Answers(self._core, config.server, spawn.epoch, self._board.columns, self._lending.door)
        names, most_us = {lane.plan.name: lane for lane in self._lanes}, config.server.max_budget_us
        self._intake = intake = Intake(names, self._arenas, max_budget_us=most_us, leases=leases, regions=regions)
        self._front = self._door(config.server.endpoint, answers, intake)
        control = config.server.control or f"ipc://{spawn.directory}/control"
        self._control = self._door(control, answers, None)
        self._results = Results(
            self._sink, self._core, self._arenas, self._front, regions=regions, on_ready=lambda number: self._crew.ready(number)
        )
        self._crew: Crew = Crew(
            self._core,
            Incarnations(self._board, self._arenas),
            self._dispatcher,
            self._channel,
            results=self._results,
            endpoint=self._front_socket.get_string(zmq.LAST_ENDPOINT),
        )
        self._alarms = Alarms(self._lanes, answers.ledger)
        self._watch_sockets()
        self._next_tick_ns = 0
        self._drain_until_ns = 0
        self._ended = False

    def _watch_sockets(self) -> None:
        """Have one epoll tell which sockets have something to read."""
        # A ZeroMQ descriptor tells of news since the socket was last looked at. Each socket here is read until it is empty, so
        # its next news wakes us; only sending on it may swallow some, see _wait. zmq_poll would look at each one twice.
        self._bits = {self._sink.fileno(): _SINK, self._front_socket.fileno(): _FRONT}
        self._bits |= {self._control_socket.fileno(): _CONTROL, self._channel.fileno(): _CHANNEL}
        for source, bit in ((self._keeper, _KEEPER), (self._lending.door, _LEASES)):
            if source is not None:
                self._bits[source.fileno()] = bit
        self._epoll = select.epoll()
        for descriptor in self._bits:
            self._epoll.register(descriptor, select.EPOLLIN)

    def _lane(self, index: int) -> Lane:
        plan = self._plan.lanes[index]
        replicas = min(self._plan.processes[part.process].replicas for part in plan.cut)
        return Lane(plan, self._arenas[index], membarrier.barrier, replicas=replicas)

    def _door(self, endpoint: str, answers: Answers, intake: Intake | None) -> Front:
        # The control socket is ipc beside [curve]: file rights guard it.
        keeper = None if intake is None else self._keeper
        largest = max(lane.links[lane.final_link].row_bytes for lane in self._plan.lanes)
        router = front_router(self._context, self._config.server, keeper, reply_bytes=largest)
        bind(router, endpoint, patience_s=REBIND_S if self._rebinds else 0)
        roster = Roster(self._config.server.max_clients, None if keeper is None else keeper.allowed)
        if intake is None:
            self._control_socket = router
        else:
            self._front_socket = router
            self._lending.meet(roster)
        outbox = Outbox(
            router,
            max_bytes=self._config.server.outbox_bytes,
            on_sent=self._core.ledger.ended,
            on_gone=self._client_gone,
            pack=mark_packed,
        )
        return Front(router, outbox, roster, self._core, answers, intake)

    # --- the loop --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until told to stop and everything accepted is answered, or until the supervisor is gone."""
        ready = _ALL
        while not self._ended:
            ready = self._wait(self.turn(time.monotonic_ns(), ready))
        self._close()

    def turn(self, now_ns: int, ready: int) -> int:
        """Take results, take requests, dispatch what fits, answer what is late; return the sockets that may have more."""
        more = 0
        if ready & _SINK and self._results.drain(MESSAGES_PER_TURN) == MESSAGES_PER_TURN:
            more |= _SINK
        if ready & _FRONT and self._front.drain(now_ns, MESSAGES_PER_TURN) == MESSAGES_PER_TURN:
            more |= _FRONT
        for lane in self._lanes:
            if lane.backlog.count or lane.waiting:
                self._dispatch(lane, now_ns)
        for ended in self._core.expired(now_ns):
            self._results.answer(ended)
        self._answer_aside()
        if ready & _CONTROL:
            if self._control.drain(now_ns, MESSAGES_PER_TURN):
                more |= _CONTROL
            self._control.outbox.end_turn()
        if ready & _CHANNEL:
            self._listen()
        if self._keeper is not None and ready & _KEEPER and self._keeper.drain(MESSAGES_PER_TURN) == MESSAGES_PER_TURN:
            more |= _KEEPER
        if now_ns >= self._next_tick_ns:
            self._tick(now_ns)
        self._answer_aside()
        self._next_tick_ns = self._lending.turn(self._front.outbox, now_ns, self._next_tick_ns, has_news=bool(ready & _LEASES))
        self._front.outbox.end_turn()
        return more

    def _answer_aside(self) -> None:
        """Answer what ended, or may leave, because of other requests."""
        if self._endings.early:
            for ended in self._endings.take_early():
                self._results.answer(ended)
        if self._endings.released:
            self._results.answer_released()

    def _wait(self, more: int) -> int:
        """Sleep until something comes or is due; return the sockets that have something. With *more* to do, only look."""
        timeout_ms = 0
        if self._front.outbox.take_sent() and int(self._front_socket.get(zmq.EVENTS)) & _POLLIN:
            more |= _FRONT
        if self._control.outbox.take_sent() and int(self._control_socket.get(zmq.EVENTS)) & _POLLIN:
            more |= _CONTROL
        if not more:
            due_ns = self._next_tick_ns
            deadline_ns = self._core.next_deadline_ns()
            if deadline_ns is not None and deadline_ns < due_ns:
                due_ns = deadline_ns
            timeout_ms = max(0, (due_ns - time.monotonic_ns() + 999_999) // 1_000_000)
        for descriptor, _ in self._epoll.poll(timeout_ms / 1000):
            more |= self._bits[descriptor]
        return more

    def _dispatch(self, lane: Lane, now_ns: int) -> None:
        requests = self._core.next_dispatch(lane, now_ns, DISPATCH_PER_TURN)
        if not requests:
            return
        fill = self._intake.fill
        for request in requests:
            fill(request)
        self._dispatcher.send(lane, requests)

    # --- the tick --------------------------------------------------------------------------------------------------------

    def _tick(self, now_ns: int) -> None:
        """Look for what does not come by message: lost slots, hanging processes, clients that do not read, orders."""
        self._board.head[HEAD_BEAT_NS] = now_ns
        in_use = any(lane.slots.used_count for lane in self._lanes)
        self._next_tick_ns = now_ns + (TICK_NS if in_use else IDLE_TICK_NS)
        if in_use:
            for ended in self._core.condemn_lost():
                self._results.answer(ended)
            self._core.settle()
            for ended in self._core.refuse_stuck():
                self._results.answer(ended)
        self._crew.report_hanging(now_ns)
        ledger, overheld = self._alarms.look(now_ns)
        if ledger:
            get_logger().error("ledger_unbalanced", **ledger)
        for lane, slots in overheld.items():
            get_logger().error("slots_overheld", lane=lane, slots=slots)
        if self._keeper is not None and self._keeper.look(now_ns):
            self._front.roster.review()
        self._front.outbox.retry(now_ns)
        self._control.outbox.retry(now_ns)
        if self._front.outbox.is_waiting:
            self._next_tick_ns = now_ns + RETRY_NS
        if self._core.draining:
            self._finish_draining(now_ns)

    def _finish_draining(self, now_ns: int) -> None:
        if now_ns >= self._drain_until_ns:
            for ended in self._core.drain_rest():
                self._results.answer(ended)
        self._answer_aside()
        self._front.outbox.end_turn()
        waiting = self._front.outbox.finals_waiting
        late = now_ns >= self._drain_until_ns + IDLE_TICK_NS
        self._ended = not self._core.in_flight and (not waiting or late)
        self._next_tick_ns = now_ns + TICK_NS

    def _listen(self) -> None:
        """Do what the supervisor says; when it is gone, so are we."""
        events = self._channel.receive()
        if events is None:
            self._ended = True
            return
        for event in events:
            if event["event"] == "terminate":
                hurry = self._core.draining
                self._core.draining = True
                self._drain_until_ns = time.monotonic_ns() + (0 if hurry else int(self._config.server.drain_s * 1e9))
            else:
                self._crew.obey(event)
        self._next_tick_ns = 0

    def _client_gone(self, client: Client, finals_lost: int) -> None:
        """Forget a client that cannot be reached: its queued requests end, its running ones become orphans."""
        self._core.ledger.undeliverable += finals_lost
        self._core.gone(client)
        self._lending.client_gone(client)
        self._front.roster.forget(client)
        self._control.roster.forget(client)

    def _close(self) -> None:
        self._dispatcher.close()
        for socket in (self._front_socket, self._control_socket):
            socket.close()
        if self._keeper is not None:
            self._keeper.close()
        self._lending.close()
        self._sink.close(linger=0)
        self._context.term()
        self._channel.close()


def run_broker(spawn: Spawn) -> int:
    """Serve as the broker; return the exit code."""
    die_with_parent(spawn.parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    config = load_config(Path(spawn.config), spawn.endpoint, spawn.control)
    configure(spawn.name, spawn.log_level)
    if not membarrier.register():
        get_logger().warning("no_membarrier", wait_ms=int(membarrier.FALLBACK_WAIT_S * 1000))
    raise_descriptor_limit()
    try:
        server = Server(spawn, config, load_plan(plan_path(spawn.directory)))
    except ConfigError as error:
        Channel(spawn.channel).send("refused", reason=str(error))
        return 2
    limit_memory(config)
    server.run()
    return 0
