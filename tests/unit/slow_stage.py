"""A stage process made of single steps, which follows the stage's side of the ownership rule and may rest between any two.

Each store, load and send is a step of its own. What it does to the world around it, it does through ``slot_world.World``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.incarnations import Incarnation
from schemas.arena import holder_word
from schemas.hop import LONE, Hop, HopKind
from schemas.status import Code
from schemas.words import RUN_COUNT, RUN_LANE, RUN_STARTED_NS, column_of

if TYPE_CHECKING:
    from slot_world import World

# Where a process may rest; "idle" and "dead" are the other answers of a step.
POINTS = ("published", "checked", "taken", "called", "written", "left", "picked", "named", "sent")
MAX_BATCH = 2


class ProcessDiedError(Exception):
    """The process that makes this step dies in it."""


class StageProcess:
    """One incarnation of one process of the lane's cut, from its start to its death; ``step`` makes one step."""

    def __init__(self, world: World, incarnation: Incarnation, replica: int) -> None:
        self.world = world
        self.incarnation = incarnation
        self.replica = replica
        self.me = incarnation.number
        self.part = world.lane.plan.cut[incarnation.process]
        self.inbox: list[Hop] = []
        self.mine: set[int] = set()
        # Hops past their check whose slot was not yet sent on: what this process may still write to.
        self.touching: list[Hop] = []
        self.view: list[int] = []
        self._held = world.arena.held[column_of(self.me)]
        self._column = world.board.columns[column_of(self.me)]
        self._steps = self._serve()

    def step(self) -> str:
        """Go on to the next point between two steps and return its name; dying is one way to get there."""
        return next(self._steps)

    def _serve(self) -> Iterator[str]:
        while True:
            yield "idle"
            if not self.inbox:
                continue
            self.view = self.world.shown(self.incarnation.process + 1)
            taken: list[Hop] = []
            for hop in self._receive():
                yield from self._take(hop, taken)
            alone = [[hop] for hop in taken if hop[7] & LONE]
            for batch in [*alone, [hop for hop in taken if not hop[7] & LONE]]:
                if batch:
                    yield from self._run(batch)
                    yield from self._let_go(batch)

    def _receive(self) -> list[Hop]:
        batch, self.inbox = self.inbox[:MAX_BATCH], self.inbox[MAX_BATCH:]
        return batch

    def _take(self, hop: Hop, taken: list[Hop]) -> Iterator[str]:
        words, slot = self.world.arena, hop[0]
        self._held[slot] = 1
        yield "published"
        holder = int(words.holder[slot])
        same_life = words.generation[slot] == hop[1]
        if same_life and holder & 0xFFFFFFFF == self.me and holder >> 32 != self.me:
            self.touching.append(hop)
            yield "checked"
            words.holder[slot] = holder_word(self.me, self.me)
            self.mine.add(slot)
            taken.append(hop)
            yield "taken"
        elif slot not in self.mine:
            self._held[slot] = 0

    def _run(self, batch: list[Hop]) -> Iterator[str]:
        self.world.arena.run_pairs[column_of(self.me), : len(batch)] = [hop[0] << 32 | hop[1] for hop in batch]
        self._column[RUN_LANE], self._column[RUN_COUNT] = 0, len(batch)
        self._column[RUN_STARTED_NS] = 1
        yield "called"
        for hop in batch:
            self.world.write(self, hop)
            yield "written"
        self._column[RUN_STARTED_NS] = 0
        yield "left"

    def _let_go(self, batch: list[Hop]) -> Iterator[str]:
        failed = [hop for hop in batch if self.world.fails_in.get(hop[2]) == self.incarnation.process]
        passed = [hop for hop in batch if hop not in failed]
        yield from self._send(failed, 0, HopKind.DONE, int(Code.BAD_IMAGE))
        if self.part.end_step == len(self.world.lane.plan.steps):
            yield from self._send(passed, 0, HopKind.DONE, 0)
        elif not self.view:
            yield from self._send(passed, 0, HopKind.NO_REPLICA, 0)
        else:
            taker = self.view[self.world.pick % len(self.view)]
            yield "picked"
            yield from self._send(passed, taker, HopKind.WORK, 0)

    def _send(self, hops: list[Hop], to: int, kind: HopKind, code: int) -> Iterator[str]:
        if not hops:
            return
        slots = [hop[0] for hop in hops]
        for slot in slots:
            self.world.arena.holder[slot] = holder_word(self.me, to)
            yield "named"
        self.touching = [hop for hop in self.touching if hop not in hops]
        for hop in hops:
            self.world.send(self.me, to, (*hop[:4], int(kind), self.part.end_step, code, *hop[7:]))
        yield "sent"
        self.mine -= set(slots)
        for slot in slots:
            self._held[slot] = 0
