"""The ownership rule and the ledger hold in every order of events that hypothesis can think of.

Sixty runs by default; ``HYPOTHESIS_PROFILE=long`` makes ten thousand.
"""

from __future__ import annotations

import os
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from slot_world import CLIENTS, StageProcess, World

RUNS = {"long": 10_000}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 60)
# What is left at the end settles in fewer rounds than this, or never.
PATIENCE_ROUNDS = 400
ANY = st.integers(0, 7)
IDS = st.integers(1, 4)
ItemT = TypeVar("ItemT")


def one_of(items: list[ItemT], which: int) -> ItemT:
    """Return one of *items*."""
    return items[which % len(items)]


class Slots(RuleBasedStateMachine):
    """Two stages of one or two replicas, one to four slots, two clients."""

    world: World

    @initialize(slots=st.integers(1, 4), first=st.integers(1, 2), second=st.integers(1, 2), ending=st.sampled_from("rks"))
    def begin(self, slots: int, first: int, second: int, ending: str) -> None:
        """Start all processes. At the end those that rest go on (r), are killed (k), or the server is told to stop (s)."""
        self.world = World(slots, (first, second))
        self.ending = ending

    # --- clients ---------------------------------------------------------------------------------------------------------

    @rule(
        client=st.integers(0, CLIENTS - 1),
        request_id=IDS,
        idempotent=st.sampled_from([True, True, True, False]),
        is_killer=st.sampled_from([False, False, False, True]),
        fails_in=st.sampled_from([-1, -1, -1, 0, 1]),
        budget_ns=st.sampled_from([5, 1_000, 1_000]),
    )
    def admit(self, client: int, request_id: int, budget_ns: int, **values: bool | int) -> None:
        """A request comes."""
        self.world.admit(client, request_id, deadline_ns=self.world.now_ns + budget_ns, **values)

    @rule(client=st.integers(0, CLIENTS - 1), request_id=IDS)
    def cancel(self, client: int, request_id: int) -> None:
        """A client takes a request back."""
        self.world.cancel(client, request_id)

    @rule(client=st.integers(0, CLIENTS - 1))
    def vanish(self, client: int) -> None:
        """A client goes away; the broker learns of it when it answers."""
        self.world.vanished.add(self.world.clients[client])

    # --- the broker ------------------------------------------------------------------------------------------------------

    @rule(pick=ANY)
    def dispatch(self, pick: int) -> None:
        """The broker sends what may go."""
        self.world.dispatch(pick)

    @rule()
    def collect(self) -> None:
        """The broker takes what came back."""
        self.world.collect()

    @rule()
    def tick(self) -> None:
        """The broker looks for lost slots."""
        self.world.tick()

    @rule(passed_ns=st.sampled_from([1, 5, 1_000]))
    def expire(self, passed_ns: int) -> None:
        """Time passes."""
        self.world.expire(passed_ns)

    # --- the stages ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.processes)
    @rule(which=ANY, steps=st.integers(1, 12), pick=ANY)
    def go_on(self, which: int, steps: int, pick: int) -> None:
        """A process makes some steps, then rests where it is."""
        self.world.pick = pick
        process = one_of(list(self.world.processes.values()), which)
        for _ in range(steps):
            self._step(process)

    def _step(self, process: StageProcess) -> None:
        if process.me in self.world.processes:
            self.world.step(process)
            self.world.check()

    @precondition(lambda self: self.world.messages)
    @rule(which=ANY)
    def deliver(self, which: int) -> None:
        """A hop arrives."""
        self.world.deliver(one_of(self.world.messages, which))

    @rule()
    def deliver_all(self) -> None:
        """All hops arrive."""
        for message in list(self.world.messages):
            self.world.deliver(message)

    @precondition(lambda self: any(m.sender in self.world.dead for m in self.world.messages))
    @rule(which=ANY)
    def lose(self, which: int) -> None:
        """A hop that its sender did not live to see off is lost."""
        self.world.messages.remove(one_of([m for m in self.world.messages if m.sender in self.world.dead], which))

    # --- deaths ----------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.processes)
    @rule(which=ANY)
    def kill(self, which: int) -> None:
        """A process dies where it stands."""
        self.world.kill(one_of(list(self.world.processes.values()), which))

    @precondition(lambda self: self.world.dead)
    @rule(which=ANY)
    def reap(self, which: int) -> None:
        """A dead process is waited for."""
        self.world.reap(one_of(list(self.world.dead.values()), which))

    @rule()
    def start(self) -> None:
        """What is missing is started and shown."""
        self.world.start_missing()

    @rule()
    def give_up_lane(self) -> None:
        """The lane cannot start, until a process of it does."""
        if not self.world.lane.replicas[0]:
            self.world.give_up_lane()

    # --- what always holds, and what holds at the end --------------------------------------------------------------------

    @invariant()
    def nothing_is_wrong(self) -> None:
        """See World.check."""
        self.world.check()

    def teardown(self) -> None:
        """Everything settles: each request was answered once, each slot is free, each process lets go."""
        if not hasattr(self, "world"):
            return
        world = self.world
        if self.ending == "k":
            for process in list(world.processes.values()):
                world.kill(process)
        if self.ending == "s":
            world.stop()
        for _ in range(PATIENCE_ROUNDS):
            if world.lane.slots.free_count == world.slots and not world.core.in_flight:
                break
            self._round()
        assert world.lane.slots.free_count == world.slots, "a slot is stuck"
        assert all(world.finals[request.ticket] == 1 for request in world.admitted)
        assert world.core.ledger.snapshot(0)["balanced"]
        self._let_all_go_on(40)
        assert not world.arena.held[[number & 0xFF for number in world.processes]].any()

    def _round(self) -> None:
        """Everybody does what is to do."""
        for process in list(self.world.dead.values()):
            self.world.reap(process)
        self.world.start_missing()
        self.deliver_all()
        self._let_all_go_on(20)
        self.world.tick()
        self.world.dispatch(0)
        self.world.check()

    def _let_all_go_on(self, steps: int) -> None:
        for process in list(self.world.processes.values()):
            for _ in range(steps):
                self._step(process)


TestSlots = Slots.TestCase
TestSlots.settings = settings(
    max_examples=RUNS,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
