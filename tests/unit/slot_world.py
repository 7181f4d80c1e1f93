"""A server in one thread: the real core, slot table, incarnations and shared words, with stage processes made of single steps.

A test decides every interleaving. Messages travel unordered; those of a dead sender may be lost, those to a dead receiver are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from builders import echo_plan, make_arena, make_board, make_request, no_barrier
from slow_stage import ProcessDiedError, StageProcess

from broker import life
from broker.core import Core
from broker.endings import Ended
from broker.incarnations import Incarnations
from broker.lanes import Lane
from broker.life import Client, Request
from broker.metrics import Ledger
from schemas.hop import LONE, Hop, HopKind
from schemas.status import KeyPolicy
from schemas.words import INCARNATION, PROCESS, VISIBLE

CLIENTS = 2


@dataclass
class Message:
    """One hop on its way; receiver 0 is the broker."""

    sender: int
    receiver: int
    hop: Hop


@dataclass
class World:
    """The broker's shell and everything around it."""

    slots: int = 2
    replicas: tuple[int, int] = (1, 1)
    more: str = ""
    now_ns: int = 1_000_000
    pick: int = 0
    processes: dict[int, StageProcess] = field(default_factory=dict)
    dead: dict[int, StageProcess] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    sink: list[Hop] = field(default_factory=list)
    killers: set[int] = field(default_factory=set)
    fails_in: dict[int, int] = field(default_factory=dict)
    kills: Counter[int] = field(default_factory=Counter)
    finals: Counter[int] = field(default_factory=Counter)
    admitted: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        plan = echo_plan(slots=self.slots, replicas=self.replicas, more=self.more)
        self.arena, self.board = make_arena(plan), make_board()
        self.lane = Lane(plan, self.arena, no_barrier)
        self.core = Core([self.lane], Ledger(), max_in_flight=6)
        self.incarnations = Incarnations(self.board, [self.arena])
        self.clients = [Client(bytes([index])) for index in range(CLIENTS)]
        self.vanished: set[Client] = set()
        # Rows of others that each client let pass since it has something to send.
        self.passed_by: Counter[bytes] = Counter()
        # What each process of the cut wrote last into each slot: (ticket, generation).
        self.payload: list[dict[int, tuple[int, int]]] = [{} for _ in range(self.slots)]
        self.start_missing()

    # --- the stages' side ------------------------------------------------------------------------------------------------

    def write(self, process: StageProcess, hop: Hop) -> None:
        """Write a hop's mark into its slot's payload; nobody may do so in another life of the slot."""
        self.check_may_touch(hop)
        if hop[2] in self.killers:
            self.kills[hop[2]] += 1
            raise ProcessDiedError
        self.payload[hop[0]][process.incarnation.process] = (hop[2], hop[1])

    def check_may_touch(self, hop: Hop) -> None:
        """Fail unless the slot still is in the life that *hop* speaks of, or waits for those who may touch that life."""
        slot, generation, ticket = hop[:3]
        request = self.lane.slots.requests[slot]
        assert request is not None, f"slot {slot} is free while ticket {ticket} may be written"
        assert request.ticket == ticket, f"slot {slot} belongs to ticket {request.ticket} while {ticket} may be written"
        lives = 1 if request.state in (life.CONDEMNED, life.CONDEMNED_ORPHAN) else 0
        assert lives or request.state in (life.HELD, life.ORPHAN), life.STATE_NAMES[request.state]
        assert self.lane.slots.generations[slot] == generation + lives, f"slot {slot} has begun another life"

    def send(self, sender: int, receiver: int, hop: Hop) -> None:
        """Put a hop on its way."""
        if receiver == 0 or receiver in self.processes:
            self.messages.append(Message(sender, receiver, hop))
            self.sent.append(self.messages[-1])

    def shown(self, process: int) -> list[int]:
        """Return the incarnations of *process* on the board."""
        rows = self.board.columns[:, [INCARNATION, PROCESS, VISIBLE]].tolist()
        return [number for number, serves, visible in rows if visible and serves == process]

    def step(self, process: StageProcess) -> str:
        """Let *process* make one step; return where it rests."""
        try:
            return process.step()
        except ProcessDiedError:
            self.kill(process)
            return "dead"

    def senders(self) -> list[StageProcess]:
        """Return the live processes that a holder word names as the one who gave a slot to another."""
        givers = {int(holder) >> 32 for holder in self.arena.holder if int(holder) >> 32 != int(holder) & 0xFFFFFFFF}
        return [process for process in self.processes.values() if process.me in givers]

    def kill(self, process: StageProcess) -> None:
        """End *process* where it stands; what it has received, and what is on its way to it, is lost."""
        del self.processes[process.me]
        self.dead[process.me] = process
        self.messages = [message for message in self.messages if message.receiver != process.me]

    def deliver(self, message: Message) -> None:
        """Let a hop arrive."""
        self.messages.remove(message)
        inbox = self.sink if message.receiver == 0 else self.processes[message.receiver].inbox
        inbox.append(message.hop)

    def late(self) -> list[Message]:
        """Return what was sent in an earlier life of its slot to somebody who still hears."""
        owners = self.lane.slots.requests
        hearing = [message for message in self.sent if message.receiver == 0 or message.receiver in self.processes]
        return [m for m in hearing if (owner := owners[m.hop[0]]) is None or owner.ticket != m.hop[2]]

    def hear_again(self, message: Message) -> None:
        """Let a hop arrive that has arrived before."""
        self.messages.append(message)
        self.deliver(message)

    # --- the supervisor's side -------------------------------------------------------------------------------------------

    def start_missing(self) -> None:
        """Start and show each replica that is not there."""
        taken = {(p.incarnation.process, p.replica) for p in (*self.processes.values(), *self.dead.values())}
        for index, count in enumerate(self.replicas):
            for replica in range(count):
                if (index, replica) not in taken:
                    self.show(self.start(index, replica))

    def start(self, index: int, replica: int) -> StageProcess:
        """Start one replica; senders do not know it yet."""
        incarnation = self.incarnations.prepare(index)
        assert incarnation is not None
        self.core.live.add(incarnation.number)
        made = self.processes[incarnation.number] = StageProcess(self, incarnation, replica)
        return made

    def show(self, process: StageProcess) -> None:
        """Put a ready process on the board."""
        self.incarnations.show(process.incarnation)
        self.lane.add_replica(process.incarnation.process, process.me)
        self.lane.unavailable = ""

    def reap(self, process: StageProcess) -> None:
        """Do what the shell does when a process was waited for."""
        del self.dead[process.me]
        self.collect()
        call = self.incarnations.remove(process.me)
        self._answer_all(self.core.reaped(process.me, call))
        self.core.settle()
        self.incarnations.release_column(process.me)

    # --- the shell's side ------------------------------------------------------------------------------------------------

    def admit(self, client: int, request_id: int, **values: bool | int) -> None:
        """Have a request come in."""
        who = self.clients[client]
        if who in self.vanished or request_id in who.in_flight:
            return
        killer, fails_in = bool(values.pop("is_killer")), int(values.pop("fails_in"))
        ago_us = values.pop("born_ago_us", 0)
        born_us = self.now_ns // 1000 - ago_us if ago_us else 0
        request = make_request(who, request_id, self.lane, **values, born_us=born_us, arrived_ns=self.now_ns)
        self.core.ledger.received += 1
        refusal = self.core.admit(request)
        if refusal is not None:
            self.core.ledger.ended(refusal.code)
            assert not self.core.endings.early, "what was refused has superseded something"
            return
        self.admitted.append(request)
        self.fails_in[request.ticket] = fails_in
        if killer:
            self.killers.add(request.ticket)
        self._answer_aside()

    def dispatch(self, pick: int) -> None:
        """Send what may go."""
        before = {id(request): request.client.fair for request in self.lane.backlog.waiting()}
        jobs = self.core.next_dispatch(self.lane, self.now_ns, 3)
        self._check_turns([request for request in jobs if id(request) in before])
        for request in jobs:
            serving = self.lane.replicas[self.lane.process_of(request.stage)]
            taker = serving[pick % len(serving)]
            self._check_untouched(request)
            self.lane.slots.hand_over([request.slot], taker)
            flags = LONE if request.lone else 0
            generation = self.lane.slots.generations[request.slot]
            hop = (request.slot, generation, request.ticket, 0, int(HopKind.WORK), request.stage, 0, flags, request.deadline_ns)
            self.send(0, taker, hop)
        self._answer_aside()

    def _check_turns(self, jobs: list[Request]) -> None:
        """Fail when a client that waits is passed by for longer than two quanta and a request: all are of one level here."""
        for job in jobs:
            backlog, max_age_ns = self.lane.backlog, self.lane.plan.max_age_ns
            assert not (max_age_ns and job.born_us and self.now_ns - job.born_us * 1000 > max_age_ns), "too old"
            waiting = {r.client.fair for r in backlog.waiting() if not backlog.is_parked(r)} - {job.client.fair}
            self.passed_by = Counter({client: self.passed_by[client] + job.rows for client in waiting})
        assert max(self.passed_by.values(), default=0) <= 2 * 8 + 8

    def _check_untouched(self, request: Request) -> None:
        for process in self.processes.values():
            assert all(hop[0] != request.slot for hop in process.touching), f"slot {request.slot} is given out while in use"

    def collect(self) -> None:
        """Take what lies in the sink."""
        hops, self.sink = self.sink, []
        for slot, generation, ticket, _, kind, stage, code, _, _ in hops:
            done = self.core.complete(self.lane, slot, (generation, ticket), kind=kind, stage=stage, code=code)
            if isinstance(done, Ended):
                self._answer(done.request, done.code)
            elif done is not None:
                self._answer_from_slot(done, code)
            self._answer_aside()

    def _answer_from_slot(self, request: Request, code: int) -> None:
        """Send what the stages left in a slot; of an Ordered key, all elders must have their answers."""
        if not code:
            written = (request.ticket, self.lane.slots.generations[request.slot])
            assert self.payload[request.slot] == {0: written, 1: written}, "answered from another life"
        if request.policy == KeyPolicy.ORDERED:
            elders = [other for other in self.admitted if other.ticket < request.ticket and is_same_key(other, request)]
            assert all(self.finals[other.ticket] for other in elders), "an answer left before its elder's"
        self._answer(request, code)
        self.core.finish(request)

    def _answer_aside(self) -> None:
        """Answer what other requests ended or released, as the shell does before its turn is over."""
        endings = self.core.endings
        while endings.early or endings.released:
            for end in endings.take_early():
                self._answer(end.request, end.code)
            if endings.released:
                one = endings.released.popleft()
                self._answer_from_slot(one.request, one.code)

    def tick(self) -> None:
        """Look for lost slots."""
        self.collect()
        self._answer_all(self.core.condemn_lost())
        self.core.settle()
        self._answer_all(self.core.refuse_stuck())

    def expire(self, passed_ns: int) -> None:
        """Let time pass."""
        self.now_ns += passed_ns
        self._answer_all(self.core.expired(self.now_ns))

    def cancel(self, client: int, request_id: int) -> None:
        """Have a client take a request back."""
        ended = self.core.cancel(self.clients[client], request_id)
        self._answer_all([] if ended is None else [ended])

    def give_up_lane(self) -> None:
        """Answer what waits in a lane that cannot start."""
        self._answer_all(self.core.make_unavailable(self.lane, "it does not start"))

    def stop(self) -> None:
        """End what is left when the time to drain is over."""
        self.core.draining = True
        self._answer_all(self.core.drain_rest())

    def _answer_all(self, ended: list[Ended]) -> None:
        for end in ended:
            self._answer(end.request, end.code)
        self._answer_aside()

    def _answer(self, request: Request, code: int) -> None:
        """Send a final; that its client is gone is found out by this, and is the end of all its requests."""
        self.finals[request.ticket] += 1
        client = request.client
        if client not in self.vanished:
            self.core.ledger.ended(code)
            return
        self.core.ledger.undeliverable += 1
        if client in self.clients:
            self.clients[self.clients.index(client)] = Client(client.identity)
        lost = [other.ticket for other in client.in_flight.values() if other.state in life.LIVE]
        assert self.core.gone(client) == len(lost)
        self.finals.update(lost)

    # --- what always holds -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Fail when something is not as it must be after every step."""
        self._check_slots()
        self._check_keys()
        for process in self.processes.values():
            for hop in process.touching:
                self.check_may_touch(hop)
        writers = Counter(hop[:2] for process in self.processes.values() for hop in process.touching)
        assert all(count == 1 for count in writers.values()), "two may write the same slot"
        waiting = sum(not self.finals[request.ticket] for request in self.admitted)
        assert max(self.finals.values(), default=0) <= 1
        assert self.core.in_flight == waiting == sum(len(client.in_flight) for client in self._all_clients())
        assert self.core.ledger.snapshot(waiting)["balanced"]
        assert all(count <= 2 for count in self.kills.values()), "a killer cost a third process"

    def _check_slots(self) -> None:
        slots = self.lane.slots
        free = slots._free
        assert len(set(free)) == len(free)
        assert slots.free_count + slots.used_count == slots.count
        for slot, request in enumerate(slots.requests):
            assert (request is None) == (slot in free)
            assert request is None or (request.slot == slot and request.state in life.WITH_SLOT)
            condemned = request is not None and request.state in (life.CONDEMNED, life.CONDEMNED_ORPHAN)
            assert condemned == (slot in slots.condemned)
        live = [request for request in slots.requests if request is not None]
        assert {id(r) for r in self.lane.waiting} == {id(r) for r in live if r.state == life.WAITING}
        orphans = Counter(id(r.client) for r in live if r.state in (life.ORPHAN, life.CONDEMNED_ORPHAN))
        assert all(client.orphans == orphans[id(client)] for client in self._all_clients())

    def _check_keys(self) -> None:
        """Of a Latest key no more wait, and are inside, than may; each key with something live has its line, and no other."""
        slots, backlog = self.lane.slots, self.lane.backlog
        inside = [request for request in slots.requests if request is not None and request.policy]
        waiting = [request for request in backlog.waiting() if request.policy]
        lines = {id(request.line) for request in (*inside, *waiting) if is_in_line(request)}
        assert len(self.lane.lines) == len(lines)
        assert sum(r is not None and r.state == life.KEPT for r in slots.requests) == self.lane.kept
        for request in waiting:
            same = [other for other in waiting if other.line is request.line]
            if request.policy == KeyPolicy.ORDERED:
                assert not backlog.is_parked(request)
                continue
            newest = max(same, key=lambda other: other.ticket)
            assert len(same) <= newest.latest_n
            taken = sum(other.line is request.line for other in inside) + sum(not backlog.is_parked(o) for o in same)
            assert taken <= max(1, *(other.latest_n for other in self.admitted if is_same_key(other, request)))
            assert taken, "a key has nothing inside, and nobody has its turn"

    def _all_clients(self) -> list[Client]:
        return list({id(client): client for client in (*self.clients, *(r.client for r in self.admitted))}.values())


def is_same_key(one: Request, other: Request) -> bool:
    """Return whether two requests are of one key: of one client or its successor, and both ordered or both latest."""
    ordered = int(KeyPolicy.ORDERED)
    same = one.client.fair == other.client.fair and one.key == other.key
    return bool(same and one.policy and other.policy and (one.policy == ordered) == (other.policy == ordered))


def is_in_line(request: Request) -> bool:
    """Return whether *request* still is in its key's line: Ordered until it is answered, Latest while it has a slot."""
    return request.line is not None and (request.policy != KeyPolicy.ORDERED or request.state in life.LIVE)
