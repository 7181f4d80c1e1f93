"""A process takes and lets go of slots in the one order in which nobody can be hurt, and drops what is not for this life."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from builders import FIRST, SECOND, echo_plan, make_arena, make_board
from numpy.typing import NDArray

from schemas import arena as arena_module
from schemas.arena import Board, LaneArena, holder_word
from schemas.hop import HOP, Hop, HopKind
from schemas.words import STALE, column_of
from stages import taking
from stages.faults import Faults
from stages.taking import FEW, SlotHands

ME = SECOND
SLOTS = 12
# Both ways through the code: hop by hop, and all at once.
COUNTS = pytest.mark.parametrize("count", [1, FEW, FEW + 1, SLOTS])


@dataclass
class Recorded:
    """Shared words that note each access by (what, name, slots)."""

    name: str
    words: NDArray[Any]
    log: list[tuple[str, str, list[int]]]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.words)

    def __getitem__(self, at: Any) -> Any:
        """Load; a row of the held matrix is recorded as well."""
        if self.words.ndim == 2:
            return Recorded(self.name, self.words[at], self.log)
        self.log.append(("load", self.name, np.ravel(at).tolist()))
        value = self.words[at]
        return value if isinstance(at, np.ndarray) else int(value)

    def __setitem__(self, at: Any, value: Any) -> None:
        """Store."""
        self.log.append(("store", self.name, np.ravel(at).tolist()))
        self.words[at] = value


@dataclass
class RecordedArena:
    """The words of an arena that a stage's hands touch."""

    real: LaneArena
    log: list[tuple[str, str, list[int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.generation = Recorded("generation", self.real.generation, self.log)
        self.holder = Recorded("holder", self.real.holder, self.log)
        self.held = Recorded("held", self.real.held, self.log)

    def order(self, slot: int) -> list[str]:
        """Return what happened to one slot, in order."""
        return [f"{what} {name}" for what, name, slots in self.log if slot in slots]


@dataclass
class Stage:
    """One process with its hands, and what they touch."""

    arena: LaneArena
    board: Board
    hands: SlotHands
    sent: list[bytes] = field(default_factory=list)

    def held(self) -> list[int]:
        """Return the slots that the process says it may touch."""
        return np.flatnonzero(self.arena.held[column_of(ME)]).tolist()

    @property
    def stale(self) -> int:
        """Return how many hops were dropped."""
        return int(self.board.columns[column_of(ME), STALE])

    def bytes_of(self, slot: int) -> bytes:
        """Return every byte that belongs to a slot, words aside."""
        parts = [self.arena.stamps[slot], self.arena.error[slot], self.arena.descriptors[:, slot]]
        return b"".join(part.tobytes() for part in [*parts, *(region[slot] for region in self.arena.regions)])


def make_stage(fault: Faults | None = None) -> Stage:
    """Return a process that holds nothing."""
    arena, board = make_arena(echo_plan(slots=SLOTS)), make_board()
    column = column_of(ME)
    hands = SlotHands(arena, board.columns[column], incarnation=ME, fault=fault)
    return Stage(arena, board, hands)


def hop(slot: int, *, generation: int = 0, ticket: int = 1) -> Hop:
    """Return a hop for a slot."""
    return (slot, generation, ticket, 0, int(HopKind.WORK), 1, 0, 0, 1_000)


def hops_to_me(stage: Stage, count: int, sender: int = FIRST) -> list[Hop]:
    """Have *sender* name this process as the next holder of slots 0..count-1; return the hops."""
    stage.arena.holder[:count] = holder_word(sender, ME)
    return [hop(slot, ticket=slot + 1) for slot in range(count)]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> tuple[SlotHands, RecordedArena]:
    """Return hands over an arena that notes every access."""
    arena = RecordedArena(make_arena(echo_plan(slots=SLOTS)))
    arena.real.holder[:] = holder_word(FIRST, ME)

    def scalars(words: Any) -> Any:
        return words if isinstance(words, Recorded) else arena_module.scalars(words)

    monkeypatch.setattr(taking, "scalars", scalars)
    board = make_board()
    hands = SlotHands(arena, board.columns[2], incarnation=ME, fault=None)  # type: ignore[arg-type]
    return hands, arena


@COUNTS
def test_held_is_set_before_anything_is_compared_and_the_holder_written_last(
    recorded: tuple[SlotHands, RecordedArena], count: int
) -> None:
    """Else the broker could see "not held" after this process saw the old generation."""
    hands, arena = recorded
    hands.take([hop(slot) for slot in range(count)])

    for slot in range(count):
        order = arena.order(slot)
        assert order[0] == "store held"
        assert sorted(order[1:3]) == ["load generation", "load holder"]
        assert order[3:] == ["store holder"]


@COUNTS
def test_the_next_holder_is_named_before_the_send_and_held_cleared_after_it(
    recorded: tuple[SlotHands, RecordedArena], count: int
) -> None:
    """And nothing else is touched; after the send only held."""
    hands, arena = recorded
    hops = [hop(slot) for slot in range(count)]
    hands.take(hops)
    arena.log.clear()
    hands.let_go(hops, to=FIRST, send=lambda _: arena.log.append(("send", "", list(range(count)))))

    for slot in range(count):
        assert arena.order(slot) == ["store holder", "send ", "store held"]


@COUNTS
def test_what_is_taken_is_held_and_its_holder_is_this_process(count: int) -> None:
    """And counted for its sender, who looks at that to find the one with the least work."""
    stage = make_stage()
    hops = hops_to_me(stage, count)

    assert stage.hands.take(hops) == hops
    assert stage.held() == list(range(count))
    assert stage.arena.holder[:count].tolist() == [holder_word(ME, ME)] * count
    assert stage.stale == 0


@COUNTS
def test_what_is_let_go_goes_out_as_one_message(count: int) -> None:
    """Every field as it was given."""
    stage = make_stage()
    hops = stage.hands.take(hops_to_me(stage, count))
    stage.hands.let_go(hops, to=7 << 8 | 7, send=stage.sent.append)

    assert [list(HOP.iter_unpack(message)) for message in stage.sent] == [hops]
    assert stage.arena.holder[:count].tolist() == [holder_word(ME, 7 << 8 | 7)] * count
    assert stage.held() == []


@COUNTS
@pytest.mark.parametrize("why", ["generation", "other taker", "mine already"])
def test_a_hop_of_another_life_is_dropped_without_touching_the_slot(count: int, why: str) -> None:
    """By its generation, or because the holder word names another; held is cleared again, for dropping is letting go."""
    stage = make_stage()
    hops = hops_to_me(stage, count)
    if why == "generation":
        stage.arena.generation[:] = 1
    elif why == "other taker":
        stage.arena.holder[:] = holder_word(FIRST, 9 << 8 | 9)
    else:
        stage.arena.holder[:] = holder_word(ME, ME)
    before = [stage.bytes_of(slot) for slot in range(count)]
    holders = stage.arena.holder.tolist()

    assert stage.hands.take(hops) == []
    assert (stage.held(), stage.stale) == ([], count)
    assert [stage.bytes_of(slot) for slot in range(count)] == before
    assert stage.arena.holder.tolist() == holders


@COUNTS
def test_good_hops_beside_stale_ones_are_taken(count: int) -> None:
    """Each is judged by itself."""
    stage = make_stage()
    hops = hops_to_me(stage, count)
    stage.arena.generation[::2] = 5

    assert stage.hands.take(hops) == hops[1::2]
    assert (stage.held(), stage.stale) == (list(range(1, count, 2)), len(hops[::2]))


@COUNTS
def test_a_stale_hop_for_a_slot_that_is_held_does_not_clear_held(count: int) -> None:
    """The slot is this process's in its new life; only the old hop is dropped."""
    stage = make_stage()
    stage.arena.generation[:] = 1
    stage.arena.holder[:count] = holder_word(FIRST, ME)
    stage.hands.take([hop(slot, generation=1) for slot in range(count)])

    assert stage.hands.take([hop(slot, generation=0) for slot in range(count)]) == []
    assert (stage.held(), stage.stale) == (list(range(count)), count)


@pytest.mark.parametrize("others", [0, FEW])
@pytest.mark.parametrize("old_first", [True, False])
def test_an_old_and_a_new_hop_of_one_slot_in_one_message_are_told_apart(others: int, old_first: bool) -> None:
    """Whichever comes first: the new one is taken once, the old one is dropped, the slot stays held."""
    stage = make_stage()
    beside = hops_to_me(stage, others + 1)[1:]
    stage.arena.generation[0] = 4
    pair = [hop(0, generation=3), hop(0, generation=4)]

    taken = stage.hands.take([*(pair if old_first else pair[::-1]), *beside])
    assert sorted(taken) == sorted([hop(0, generation=4), *beside])
    assert (0 in stage.held(), stage.stale) == (True, 1)


@pytest.mark.parametrize("others", [0, FEW])
def test_the_same_hop_twice_is_taken_once(others: int) -> None:
    """Two runs at once in one slot would be two writers."""
    stage = make_stage()
    hops = hops_to_me(stage, others + 1)

    assert sorted(stage.hands.take([hops[0], *hops])) == hops
    assert (stage.held(), stage.stale) == (list(range(others + 1)), 1)


def test_nothing_comes_of_nothing() -> None:
    """An empty message is none."""
    stage = make_stage()

    assert stage.hands.take([]) == []


@COUNTS
def test_faults_strike_at_their_points(count: int) -> None:
    """After the check and before the holder word; after the take; before and after the send."""
    seen: list[tuple[str, int, int]] = []
    stage: Stage

    class Watch(Faults):
        def __call__(self, here: str) -> None:
            seen.append((here, int(stage.arena.holder[0]), len(stage.sent)))

    stage = make_stage(Watch([]))
    hops = stage.hands.take(hops_to_me(stage, count))
    stage.hands.let_go(hops, to=0, send=stage.sent.append)

    named, mine, gone = holder_word(FIRST, ME), holder_word(ME, ME), holder_word(ME, 0)
    assert seen[:2] == [("between_check_and_write", named, 0), ("after_take", mine, 0)]
    assert seen[-2:] == [("after_write", mine, 0), ("after_send", gone, 1)]
