"""A slot is free or has one request; it is used again only when its hop has returned or nobody can touch it any more."""

from __future__ import annotations

import pytest
from builders import FIRST, SECOND, echo_plan, make_arena, make_request, no_barrier

from broker import life
from broker.life import Client, Request
from broker.slots import FEW, SlotTable
from schemas.arena import LaneArena, holder_word


def make_table(slots: int = 4) -> tuple[SlotTable, LaneArena, list[str]]:
    """Return a table over an arena, and the list in which its barriers are noted."""
    arena = make_arena(echo_plan(slots=slots))
    barriers: list[str] = []
    return SlotTable(arena, lambda: barriers.append("barrier")), arena, barriers


def held(table: SlotTable, incarnation: int = FIRST, state: int = life.HELD) -> Request:
    """Return a request in a slot that was handed to *incarnation*."""
    request = make_request(Client(b""), 1, state=state)
    table.hand_over([table.allocate(request)], incarnation)
    return request


def test_each_slot_is_given_out_once_until_it_is_free_again() -> None:
    """All N of them."""
    table, _, _ = make_table(3)
    requests = [held(table) for _ in range(3)]

    assert sorted(request.slot for request in requests) == [0, 1, 2]
    assert (table.free_count, table.used_count) == (0, 3)
    freed = requests[1].slot
    table.free(freed)
    assert (requests[1].slot, held(table).slot) == (-1, freed)


def test_a_slot_cannot_be_freed_twice() -> None:
    """It would be given to two requests."""
    table, _, _ = make_table()
    slot = held(table).slot
    table.free(slot)

    with pytest.raises(AssertionError, match=f"slot {slot} freed twice"):
        table.free(slot)


@pytest.mark.parametrize("count", [1, FEW, FEW + 1])
def test_the_taker_is_named_before_the_hop_is_sent(count: int) -> None:
    """holder = (broker, taker), whichever way the words are stored."""
    table, arena, _ = make_table(FEW + 2)
    table.hand_over(list(range(count)), FIRST)

    assert arena.holder.tolist() == [FIRST] * count + [0] * (FEW + 2 - count)


def test_a_slot_that_came_back_is_the_brokers() -> None:
    """Its holder word names nobody who could die."""
    table, arena, _ = make_table()
    request = held(table)
    table.take_back(request.slot)

    assert arena.holder[request.slot] == 0


@pytest.mark.parametrize("state", [life.WAITING, life.CONDEMNED, life.CONDEMNED_ORPHAN, life.DONE])
def test_a_hop_speaks_only_for_what_is_with_the_stages(state: int) -> None:
    """HELD and ORPHAN; everything else is late."""
    table, _, _ = make_table()
    request = held(table, state=state)

    assert table.owner_of(request.slot, 0) is None
    request.state = life.ORPHAN
    assert table.owner_of(request.slot, 0) is request
    assert table.owner_of(request.slot, 1) is None
    assert table.owner_of(99, 0) is None


def test_only_what_is_with_the_stages_is_lost() -> None:
    """A free slot keeps the holder word of its last life; it is not condemned for that."""
    table, arena, _ = make_table()
    free, waiting, lost, orphan = (held(table) for _ in range(4))
    slots = [lost.slot, orphan.slot]
    table.free(free.slot)
    waiting.state, orphan.state = life.WAITING, life.ORPHAN
    arena.holder[:] = holder_word(FIRST, FIRST)

    assert sorted(table.named_by({0, SECOND})) == sorted(slots)
    assert table.named_by({0, FIRST}) == []


def test_giver_and_taker_are_both_looked_at() -> None:
    """The dead one may be either."""
    table, arena, _ = make_table()
    for giver, taker in ((FIRST, SECOND), (SECOND, FIRST), (FIRST, FIRST)):
        request = held(table)
        arena.holder[request.slot] = holder_word(giver, taker)

    assert len(table.named_by({0, SECOND})) == 3
    assert len(table.named_by({0, FIRST})) == 2


def test_a_condemned_slot_begins_a_generation_before_the_barrier() -> None:
    """Takers compare with the new one from the barrier on."""
    arena = make_arena(echo_plan(slots=1))
    seen: list[int] = []
    table = SlotTable(arena, lambda: seen.append(int(arena.generation[0])))
    table.condemn([held(table).slot], {0, SECOND})

    assert seen == [1]
    assert table.generations == [1]


def test_each_life_of_a_slot_is_another_generation() -> None:
    """Also when the one before ended well: a hop of it that comes again is late."""
    table, arena, _ = make_table(1)
    table.free(held(table).slot)
    request = held(table)

    assert (table.generations, arena.generation.tolist()) == ([1], [1])
    assert table.owner_of(request.slot, 0) is None
    assert table.owner_of(request.slot, 1) is request


def test_generations_wrap_at_32_bits() -> None:
    """A hop has 32 bits for them."""
    table, arena, _ = make_table(1)
    table.generations[0] = 0xFFFFFFFF
    table.condemn([held(table).slot], {0})

    assert (table.generations, arena.generation.tolist()) == ([0], [0])


def test_a_condemned_slot_waits_for_each_that_may_touch_it() -> None:
    """Each leaves by its held word or by its reap; a barrier lies between that and the next use."""
    table, arena, barriers = make_table()
    request = held(table)
    arena.held[FIRST & 0xFF, request.slot] = arena.held[SECOND & 0xFF, request.slot] = 1
    table.condemn([request.slot], {0, FIRST, SECOND})

    assert table.quiet({0, FIRST, SECOND}) == []
    arena.held[FIRST & 0xFF, request.slot] = 0
    assert table.quiet({0, FIRST, SECOND}) == []
    assert table.quiet({0, FIRST}) == [request]
    assert (barriers, table.condemned, int(arena.holder[request.slot])) == (["barrier", "barrier"], {}, 0)


def test_one_that_was_seen_quiet_is_not_waited_for_again() -> None:
    """It drops hops of the old generation; that it takes others must not hold the slot back."""
    table, arena, _ = make_table()
    request = held(table)
    arena.held[FIRST & 0xFF, request.slot] = 1
    table.condemn([request.slot], {0, FIRST, SECOND})
    table.quiet({0, FIRST, SECOND})
    arena.held[SECOND & 0xFF, request.slot] = 1

    assert table.quiet({0, SECOND}) == [request]


def test_a_process_that_starts_later_cannot_touch_the_old_life() -> None:
    """Only those that were not reaped at the condemnation are waited for."""
    table, arena, _ = make_table()
    request = held(table)
    table.condemn([request.slot], {0})
    arena.held[FIRST & 0xFF, request.slot] = 1

    assert table.quiet({0, FIRST}) == [request]


def test_the_running_call_is_read_from_the_dead_ones_column() -> None:
    """As (slot, generation) pairs, so many as its column says."""
    table, arena, _ = make_table()
    arena.run_pairs[SECOND & 0xFF, :3] = [3 << 32 | 7, 1 << 32 | 0xFFFFFFFF, 2 << 32]

    assert table.running_call(SECOND, 2) == {(3, 7), (1, 0xFFFFFFFF)}
    assert table.running_call(SECOND, 0) == set()


def test_takers_are_those_with_work() -> None:
    """They are to turn their loops; the broker is not one of them."""
    table, _, _ = make_table()
    held(table, FIRST)
    held(table, SECOND)

    assert table.takers() == {FIRST, SECOND}


def test_generations_of_an_arena_in_use_are_kept() -> None:
    """A table over old words goes on where they are."""
    arena = make_arena(echo_plan(slots=2))
    arena.generation[:] = [5, 6]

    assert SlotTable(arena, no_barrier).generations == [5, 6]


def test_what_waits_for_a_process_is_read_off_the_holder_words() -> None:
    """Slots on their way to it and slots that it works on; none of another's, none of the broker's."""
    table, arena, _ = make_table()
    held(table, FIRST)
    working = held(table, FIRST).slot
    arena.holder[working] = holder_word(FIRST, FIRST)
    held(table, SECOND)

    assert [table.held_by(number) for number in (FIRST, SECOND)] == [2, 1]
