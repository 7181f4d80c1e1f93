"""The ownership rule and the ledger hold in every order of events that hypothesis can think of.

A hundred runs by default; ``HYPOTHESIS_PROFILE=long`` makes ten thousand.
"""

from __future__ import annotations

import os
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from slot_world import CLIENTS, World
from slow_stage import POINTS, StageProcess

from schemas.status import KeyPolicy

RUNS = {"long": 10_000}.get(os.environ.get("HYPOTHESIS_PROFILE", ""), 100)
# What is left at the end settles in fewer rounds than this, or never.
PATIENCE_ROUNDS = 400
ANY = st.integers(0, 7)
# What goes on before each event: (which process, where it comes to rest, which replica it would send to).
MOVES = st.lists(st.tuples(ANY, st.sampled_from((*POINTS, "idle")), ANY), min_size=1, max_size=5)
REQUESTS = st.lists(
    st.fixed_dictionaries(
        {
            "idempotent": st.sampled_from([True, True, True, False]),
            "is_killer": st.sampled_from([False, False, False, True]),
            "fails_in": st.sampled_from([-1, -1, -1, -1, 0, 1]),
            "deadline_ns": st.sampled_from([5, 1_000, 1_000]),
            "born_ago_us": st.sampled_from([0, 0, 1, 2]),
            "key": st.sampled_from([1, 1, 2]),
            "policy": st.sampled_from(list(KeyPolicy)),
        }
    ),
    min_size=4,
    max_size=12,
)
ItemT = TypeVar("ItemT")
Moves = list[tuple[int, str, int]]


def one_of(items: list[ItemT], which: int) -> ItemT:
    """Return one of *items*."""
    return items[which % len(items)]


class Slots(RuleBasedStateMachine):
    """Two stages of one or two replicas, one to four slots, two clients that always have something in flight."""

    world: World

    @initialize(
        slots=st.integers(1, 4),
        replicas=st.tuples(st.integers(1, 2), st.integers(1, 2)),
        load=st.integers(1, 5),
        requests=REQUESTS,
        ending=st.sampled_from(["go on", "kill", "stop"]),
        rules=st.tuples(st.sampled_from(["", "", "max_age_us = 1"]), st.sampled_from([None, None, KeyPolicy.ORDERED])),
    )
    def begin(
        self,
        slots: int,
        replicas: tuple[int, int],
        load: int,
        requests: list[dict[str, int | bool]],
        ending: str,
        rules: tuple[str, KeyPolicy | None],
    ) -> None:
        """Start all processes. *ending*: those that rest go on, or are killed, or the server is told to stop.

        *rules*: lines of the lane's config, and the policy of all requests, None = each its own.
        """
        self.world = World(slots, replicas, rules[0])
        self.policy = rules[1]
        self.load = load
        self.requests = requests
        self.ending = ending
        self.next_id = 0

    # --- what goes on all the time ---------------------------------------------------------------------------------------

    @rule(moves=MOVES)
    def go_on(self, moves: Moves) -> None:
        """Requests come and go to the stages, hops arrive, each process goes on to some point and rests there, maybe for ever."""
        world = self.world
        for which, point, pick in moves:
            if world.core.in_flight < self.load:
                self._admit()
            world.dispatch(pick)
            world.pick = pick
            self._deliver_all()
            if world.processes:
                self._step(one_of(list(world.processes.values()), which), point)

    def _admit(self) -> None:
        about: dict[str, int | bool] = one_of(self.requests, self.next_id).copy()
        about["deadline_ns"] += self.world.now_ns
        about["policy"] = about["policy"] if self.policy is None else self.policy
        about["latest_n"] = {KeyPolicy.LATEST_ONLY: 1, KeyPolicy.LATEST_N: 2}.get(KeyPolicy(about["policy"]), 0)
        self.next_id += 1
        self.world.admit(self.next_id % CLIENTS, self.next_id, **about)

    def _step(self, process: StageProcess, point: str) -> None:
        """Go on to *point*, if the process comes there before it is idle; at least one step."""
        for _ in range(30):
            if process.me not in self.world.processes:
                return
            at = self.world.step(process)
            self.world.check()
            if at in (point, "idle"):
                return

    def _deliver_all(self) -> None:
        for message in list(self.world.messages):
            self.world.deliver(message)

    @precondition(lambda self: self.world.processes)
    @rule(moves=MOVES, which=ANY, steps=st.integers(1, 20))
    def rest_anywhere(self, moves: Moves, which: int, steps: int) -> None:
        """A process makes some steps while nothing else moves."""
        self.go_on(moves)
        for _ in range(steps):
            for process in list(self.world.processes.values())[which : which + 1]:
                self.world.step(process)
                self.world.check()

    @precondition(lambda self: self.world.processes)
    @rule(moves=MOVES, which=ANY)
    def one_rests(self, moves: Moves, which: int) -> None:
        """All but one process do what there is to do, so that requests overtake each other."""
        self.go_on(moves)
        world = self.world
        resting = one_of([*world.processes, 0], which)
        for pick in range(4):
            world.dispatch(pick)
            self._deliver_all()
            for process in [process for number, process in world.processes.items() if number != resting]:
                for _ in range(4):
                    self._step(process, "idle")
        world.tick()

    @precondition(lambda self: self.world.late())
    @rule(moves=MOVES, which=ANY)
    def hear_late(self, moves: Moves, which: int) -> None:
        """A hop of an earlier life of its slot is heard once more."""
        self.world.hear_again(one_of(self.world.late(), which))
        self.go_on(moves)

    # --- clients and the broker ------------------------------------------------------------------------------------------

    @rule(moves=MOVES, which=ANY, how=st.sampled_from(["cancel", "cancel", "vanish"]))
    def leave(self, moves: Moves, which: int, how: str) -> None:
        """A client takes a request back, or goes away, which the broker learns when it answers."""
        self.go_on(moves)
        client = self.world.clients[which % CLIENTS]
        if how == "vanish":
            self.world.vanished.add(client)
        elif client.in_flight:
            self.world.cancel(which % CLIENTS, one_of(list(client.in_flight), which))

    @rule(moves=MOVES, passed_ns=st.sampled_from([0, 0, 1, 5, 1_000]))
    def tick(self, moves: Moves, passed_ns: int) -> None:
        """Time passes; the broker takes what came back, and looks for what is late and what is lost."""
        self.go_on(moves)
        self.world.expire(passed_ns)
        self.world.tick()

    @rule(moves=MOVES, path_ns=st.sampled_from([0, 0, 4, 20]))
    def become_slower(self, moves: Moves, path_ns: int) -> None:
        """What has less time left than the stages take is refused early from now on."""
        self.go_on(moves)
        self.world.lane.window.path_ns = path_ns

    # --- deaths ----------------------------------------------------------------------------------------------------------

    @rule(moves=MOVES, which=ANY, loses=st.booleans(), is_reaped=st.booleans())
    def kill(self, moves: Moves, which: int, loses: bool, is_reaped: bool) -> None:
        """A process dies where it stands; what it had sent and has not arrived is lost or not."""
        self.go_on(moves)
        if self.world.processes:
            self._kill(one_of(list(self.world.processes.values()), which), loses=loses, is_reaped=is_reaped)

    @rule(moves=MOVES, which=ANY, loses=st.booleans(), takers_check=st.booleans())
    def kill_a_sender(self, moves: Moves, which: int, loses: bool, takers_check: bool) -> None:
        """One that has named the next holder of a slot dies, before or after it sends, or when that one has just checked."""
        self.go_on(moves)
        if takers_check:
            self._deliver_all()
            for process in list(self.world.processes.values()):
                self._step(process, "checked")
        if self.world.senders():
            self._kill(one_of(self.world.senders(), which), loses=loses, is_reaped=True)

    def _kill(self, process: StageProcess, *, loses: bool, is_reaped: bool) -> None:
        self.world.kill(process)
        if loses:
            self.world.messages = [message for message in self.world.messages if message.sender != process.me]
        if is_reaped:
            self.world.reap(process)

    @rule(moves=MOVES, which=ANY, gives_up=st.sampled_from([False, False, False, True]))
    def restart(self, moves: Moves, which: int, gives_up: bool) -> None:
        """A dead process is waited for, what is missing is started and shown; before that, the lane may be given up."""
        self.go_on(moves)
        if self.world.dead:
            self.world.reap(one_of(list(self.world.dead.values()), which))
        if gives_up and not all(self.world.lane.replicas):
            self.world.give_up_lane()
        self.world.start_missing()

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
        if self.ending == "kill":
            for process in list(world.processes.values()):
                world.kill(process)
        if self.ending == "stop":
            world.stop()
        for _ in range(PATIENCE_ROUNDS):
            if world.lane.slots.free_count == world.slots and not world.core.in_flight:
                break
            self._round()
        assert world.lane.slots.free_count == world.slots, "a slot is stuck"
        assert all(world.finals[request.ticket] == 1 for request in world.admitted)
        assert world.core.ledger.snapshot(0)["balanced"]
        self._let_all_go_on(60)
        assert not world.arena.held[[number & 0xFF for number in world.processes]].any()

    def _round(self) -> None:
        """Everybody does what is to do."""
        for process in list(self.world.dead.values()):
            self.world.reap(process)
        self.world.start_missing()
        self._deliver_all()
        self._let_all_go_on(20)
        self.world.tick()
        self.world.dispatch(0)
        self.world.check()

    def _let_all_go_on(self, steps: int) -> None:
        for process in list(self.world.processes.values()):
            for _ in range(steps):
                if process.me in self.world.processes:
                    self.world.step(process)
                    self.world.check()


TestSlots = Slots.TestCase
TestSlots.settings = settings(
    max_examples=RUNS,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
