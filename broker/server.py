"""The broker process: owns the sockets and the clock, and turns the core's decisions into messages. Owner: its main thread."""

from __future__ import annotations

import hashlib
import select
import signal
import time
from pathlib import Path
from typing import Any

import zmq

from schemas import membarrier
from schemas.arena import Board, LaneArena
from schemas.config import Config, load_config
from schemas.hop import HOP, Hop, HopKind
from schemas.logs import configure, get_logger
from schemas.plan import Plan, load_plan
from schemas.spawn import Spawn, die_with_parent, plan_path, sink_endpoint
from schemas.status import Code, ConfigError, Flag
from schemas.verify import find_route
from schemas.words import HEAD_BEAT_NS, HEAD_EPOCH

from .answers import Answers
from .channel import Channel
from .core import Core, Ended
from .dispatch import Dispatcher
from .front import Front
from .incarnations import Incarnations
from .intake import Intake
from .lanes import Lane
from .life import Client, Request
from .metrics import Ledger
from .outbox import Outbox, Reply
from .replies import LaneReplies
from .sockets import front_router, seed_routing_ids, sink_pull

# One turn takes so much from each socket, so that none waits for long while another is busy.
MESSAGES_PER_TURN = 128
DISPATCH_PER_TURN = 256
# How often lost slots and hanging processes are looked for; while nothing is in a slot, much more rarely.
TICK_NS = 20_000_000
IDLE_TICK_NS = 200_000_000
# Bits of the sockets that have something to read.
_SINK, _FRONT, _CONTROL, _CHANNEL = 1, 2, 4, 8
_ALL = _SINK | _FRONT | _CONTROL | _CHANNEL
_FLAGS_AT = 40  # of Route.flags in the Route
_PACKED = int(Flag.PACKED)


def mark_packed(header: bytes) -> bytes:
    """Return *header*, one of ours, marked as part of a Packed message."""
    at = find_route(header)
    assert at is not None
    patched = bytearray(header)
    patched[at + _FLAGS_AT] |= _PACKED
    return bytes(patched)


class Server:
    """The broker of one epoch."""

    def __init__(self, spawn: Spawn, config: Config, plan: Plan) -> None:
        self._config = config
        self._plan = plan
        self._board = Board(spawn.board)
        self._board.head[HEAD_EPOCH] = spawn.epoch
        self._arenas = [LaneArena(fd, lane) for fd, lane in zip(spawn.arenas, plan.lanes, strict=True)]
        self._channel = Channel(spawn.channel)
        seed_routing_ids()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sink = sink_pull(self._context, sink_endpoint(spawn.directory, spawn.epoch))
        self._lanes = [self._lane(i) for i in range(len(plan.lanes))]
        self._replies = [LaneReplies(lane, arena) for lane, arena in zip(self._lanes, self._arenas, strict=True)]
        self._core = Core(self._lanes, Ledger(), max_in_flight=config.server.max_in_flight)
        self._incarnations = Incarnations(self._board, self._arenas)
        self._dispatcher = Dispatcher(self._context, self._board, spawn.directory)
        answers = Answers(self._core, config.server, spawn.epoch)
        intake = Intake({lane.plan.name: lane for lane in self._lanes}, self._arenas, max_budget_us=config.server.max_budget_us)
        self._intake = intake
        self._front = self._door(config.server.endpoint, answers, intake)
        control = config.server.control or f"ipc://{spawn.directory}/control"
        self._control = self._door(control, answers, None)
        # A ZeroMQ descriptor tells of news since the socket was last looked at. Each socket here is read until it is empty, so
        # its next news wakes us; only sending on it may swallow some, see _wait. zmq_poll would look at each one twice.
        self._bits = {
            self._sink.fileno(): _SINK,
            self._front_socket.fileno(): _FRONT,
            self._control_socket.fileno(): _CONTROL,
            self._channel.fileno(): _CHANNEL,
        }
        self._epoll = select.epoll()
        for descriptor in self._bits:
            self._epoll.register(descriptor, select.EPOLLIN)
        self._next_tick_ns = 0
        self._drain_until_ns = 0
        self._said_serving = False
        self._ended = False

    def _lane(self, index: int) -> Lane:
        plan = self._plan.lanes[index]
        replicas = min(self._plan.processes[part.process].replicas for part in plan.cut)
        return Lane(plan, self._arenas[index], membarrier.barrier, replicas=replicas)

    def _door(self, endpoint: str, answers: Answers, intake: Intake | None) -> Front:
        router = front_router(self._context, self._config.server, endpoint)
        if intake is None:
            self._control_socket = router
        else:
            self._front_socket = router
        outbox = Outbox(
            router,
            max_bytes=self._config.server.outbox_bytes,
            on_sent=self._core.ledger.ended,
            on_gone=self._client_gone,
            pack=mark_packed,
        )
        return Front(router, outbox, self._core, answers, intake=intake, max_clients=self._config.server.max_clients)

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
        if ready & _SINK and self._take_results() == MESSAGES_PER_TURN:
            more |= _SINK
        if ready & _FRONT and self._front.drain(now_ns, MESSAGES_PER_TURN) == MESSAGES_PER_TURN:
            more |= _FRONT
        for lane in self._lanes:
            if lane.backlog.count or lane.waiting:
                self._dispatch(lane, now_ns)
        for ended in self._core.expired(now_ns):
            self._answer(ended)
        if ready & _CONTROL:
            if self._control.drain(now_ns, MESSAGES_PER_TURN):
                more |= _CONTROL
            self._control.outbox.end_turn()
        if ready & _CHANNEL:
            self._listen()
        if now_ns >= self._next_tick_ns:
            self._tick(now_ns)
        self._front.outbox.end_turn()
        return more

    def _wait(self, more: int) -> int:
        """Sleep until something comes or is due; return the sockets that have something. With *more* to do, only look."""
        timeout_ms = 0
        if self._front.outbox.take_sent() and int(self._front_socket.get(zmq.EVENTS)) & zmq.POLLIN:
            more |= _FRONT
        if not more:
            due_ns = self._next_tick_ns
            deadline_ns = self._core.next_deadline_ns()
            if deadline_ns is not None and deadline_ns < due_ns:
                due_ns = deadline_ns
            timeout_ms = max(0, (due_ns - time.monotonic_ns() + 999_999) // 1_000_000)
        for descriptor, _ in self._epoll.poll(timeout_ms / 1000):
            more |= self._bits[descriptor]
        return more

    # --- results ---------------------------------------------------------------------------------------------------------

    def _take_results(self) -> int:
        """Take the messages that lie in the sink; return how many."""
        recv = self._sink.recv
        count = 0
        try:
            while count < MESSAGES_PER_TURN:
                message = recv(zmq.NOBLOCK)
                count += 1
                self._take_hops(list(HOP.iter_unpack(message)))
        except zmq.Again:
            return count
        return count

    def _take_hops(self, hops: list[Hop]) -> None:
        """Complete the hops of one message: they are of one lane, or one says that a process is ready."""
        if hops[0][4] == HopKind.READY:
            self._ready(hops[0][2])
            return
        lane, replies, complete = self._lanes[hops[0][3]], self._replies[hops[0][3]], self._core.complete
        done: list[tuple[Request, int, int]] = []
        for slot, generation, ticket, _, kind, stage, code, _, _ in hops:
            request = complete(lane, slot, (generation, ticket), kind=kind, stage=stage, code=code)
            if isinstance(request, Ended):
                self._answer(request)
            elif request is not None:
                done.append((request, code, stage))
        if not done:
            return
        all_stamps = replies.stamps([request.slot for request, _, _ in done])
        if not done[0][1]:
            for step, run_ns, batch in replies.runs(all_stamps[0]):
                lane.window.observe(step, run_ns, batch)
        for (request, code, stage), stamps in zip(done, all_stamps, strict=True):
            if code:
                self._answer_failed(request, replies, code, stage)
            else:
                header, frames = replies.reply(request, stamps)
                self._front.outbox.put(request.client, Reply(header, frames, 0))
            self._core.finish(request)

    def _answer_failed(self, request: Request, replies: LaneReplies, code: int, stage: int) -> None:
        field, message = replies.error(request.slot) if code != Code.DEADLINE_EXCEEDED else ("", "")
        self._front.answer_error(request, Code(code), message, stage=replies.stage_name(stage), field=field)

    def _answer(self, ended: Ended) -> None:
        """Answer a request that ended without a result; one that kills gets the digest of its input, to be found again."""
        message = ended.message
        if ended.code == Code.QUARANTINED:
            lane, request = ended.request.lane, ended.request
            row = self._arenas[lane.index].regions[lane.plan.links[0].region][request.slot, : request.payload_bytes]
            message += f"; input blake2b-64 {hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest()}"
            get_logger().error("quarantined", lane=lane.plan.name, message=message)
        self._front.answer_ended(ended, message)

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
                self._answer(ended)
            self._core.settle()
        for number, reason in self._incarnations.hanging(now_ns, self._busy()):
            self._channel.send("kill", incarnation=number, reason=reason)
        self._front.outbox.retry(now_ns)
        self._control.outbox.retry(now_ns)
        if self._core.draining:
            self._finish_draining(now_ns)

    def _busy(self) -> set[int]:
        """Return the incarnations that are named as holder or taker of a slot."""
        busy: set[int] = set()
        for lane in self._lanes:
            busy |= lane.slots.takers() if lane.slots.used_count else set()
        return busy

    def _finish_draining(self, now_ns: int) -> None:
        if now_ns >= self._drain_until_ns:
            for ended in self._core.drain_rest():
                self._answer(ended)
        self._front.outbox.end_turn()
        waiting = self._front.outbox.finals_waiting
        late = now_ns >= self._drain_until_ns + IDLE_TICK_NS
        self._ended = not self._core.in_flight and (not waiting or late)
        self._next_tick_ns = now_ns + TICK_NS

    # --- processes -------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Do what the supervisor says; when it is gone, so are we."""
        events = self._channel.receive()
        if events is None:
            self._ended = True
            return
        for event in events:
            self._obey(event)

    def _obey(self, event: dict[str, Any]) -> None:
        name = event["event"]
        if name == "prepare":
            made = self._incarnations.prepare(event["process"])
            if made is not None:
                self._core.live.add(made.number)
                self._channel.send("start", process=made.process, replica=event["replica"], incarnation=made.number)
        elif name == "reaped":
            self._reaped(event["incarnation"])
        elif name == "unavailable":
            for lane in self._served_by(event["process"]):
                for ended in self._core.make_unavailable(lane, event["reason"]):
                    self._answer(ended)
        elif name == "terminate":
            hurry = self._core.draining
            self._core.draining = True
            self._drain_until_ns = time.monotonic_ns() + (0 if hurry else int(self._config.server.drain_s * 1e9))
            self._next_tick_ns = 0

    def _served_by(self, process: int) -> list[Lane]:
        return [lane for lane in self._lanes if any(part.process == process for part in lane.plan.cut)]

    def _ready(self, number: int) -> None:
        """Put a warm process on the board; its lanes may have been given up before."""
        incarnation = self._incarnations.by_number.get(number)
        if incarnation is None or incarnation.ready:
            return
        self._dispatcher.connect(incarnation.process, number)
        self._incarnations.show(incarnation)
        for lane in self._served_by(incarnation.process):
            lane.add_replica(incarnation.process, number)
            lane.unavailable = ""
        self._channel.send("up", incarnation=number)
        if not self._said_serving and all(lane.is_ready for lane in self._lanes):
            self._said_serving = True
            self._channel.send("serving")

    def _reaped(self, number: int) -> None:
        """A process is dead and waited for: take what it still sent, condemn what it held, answer what may not run again."""
        if number not in self._incarnations.by_number:
            return
        while self._take_results():
            pass
        call = self._incarnations.remove(number)
        for ended in self._core.reaped(number, call):
            self._answer(ended)
        self._core.settle()
        self._dispatcher.disconnect(number)
        self._incarnations.release_column(number)
        self._next_tick_ns = 0

    def _client_gone(self, client: Client, finals_lost: int) -> None:
        """Forget a client that cannot be reached: its queued requests end, its running ones become orphans."""
        self._core.ledger.undeliverable += finals_lost
        self._core.gone(client)
        self._front.forget(client)
        self._control.forget(client)

    def _close(self) -> None:
        self._dispatcher.close()
        for socket in (self._front_socket, self._control_socket):
            socket.close()
        self._sink.close(linger=0)
        self._context.term()
        self._channel.close()


def run_broker(spawn: Spawn) -> int:
    """Serve as the broker; return the exit code."""
    die_with_parent(spawn.parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    config = load_config(Path(spawn.config), spawn.endpoint)
    configure(spawn.name, config.server.log_level)
    membarrier.register()
    try:
        server = Server(spawn, config, load_plan(plan_path(spawn.directory)))
    except ConfigError as error:
        Channel(spawn.channel).send("refused", reason=str(error))
        return 2
    server.run()
    return 0
