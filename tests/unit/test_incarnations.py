"""Each start of a worker gets a number and a clean column; the board shows it when it is ready and forgets it at its reap."""

from __future__ import annotations

from builders import echo_plan, make_arena, make_board

from broker.incarnations import MAX_STANDSTILL_NS, Incarnation, Incarnations
from schemas.arena import Board, LaneArena
from schemas.plan import MAX_COLUMNS
from schemas.words import (
    HEAD_VERSION,
    INCARNATION,
    PROCESS,
    RUN_COUNT,
    RUN_LANE,
    RUN_LIMIT_NS,
    RUN_STARTED_NS,
    TURNS,
    VISIBLE,
    column_of,
)

SECOND_NS = 1_000_000_000


def make_incarnations() -> tuple[Incarnations, Board, LaneArena]:
    """Return incarnations of a server with one lane, its board and arena."""
    board, arena = make_board(), make_arena(echo_plan())
    return Incarnations(board, [arena]), board, arena


def prepared(incarnations: Incarnations, process: int = 0) -> Incarnation:
    """Return a new incarnation of *process*."""
    made = incarnations.prepare(process)
    assert made is not None
    return made


def test_each_start_has_its_own_number_and_column() -> None:
    """The low byte is the column; column 0 is the broker's."""
    incarnations, _, _ = make_incarnations()
    made = [prepared(incarnations) for _ in range(5)]

    assert len({one.number for one in made}) == len({column_of(one.number) for one in made}) == 5
    assert 0 not in {column_of(one.number) for one in made}


def test_a_column_is_clean_when_it_is_used_again() -> None:
    """Nothing of the dead one is taken for the new one's: held, calls, turns, counters."""
    incarnations, board, arena = make_incarnations()
    first = prepared(incarnations)
    column = column_of(first.number)
    board.columns[column], arena.held[column] = 9, 9
    incarnations.remove(first.number)
    incarnations._free = [column]
    second = prepared(incarnations, 1)

    assert column_of(second.number) == column
    assert second.number != first.number
    assert (int(board.columns[column, INCARNATION]), int(board.columns[column, PROCESS])) == (second.number, 1)
    assert board.columns[column].sum() == second.number + 1
    assert not arena.held[column].any()


def test_a_column_is_not_used_again_before_its_reap_is_handled() -> None:
    """All others may be taken meanwhile; then there is none."""
    incarnations, _, _ = make_incarnations()
    made = [prepared(incarnations) for _ in range(MAX_COLUMNS - 1)]
    assert incarnations.prepare(0) is None
    incarnations.remove(made[3].number)
    assert incarnations.prepare(0) is None
    incarnations.release_column(made[3].number)

    assert column_of(prepared(incarnations).number) == column_of(made[3].number)


def test_the_column_that_was_free_for_longest_is_used_next() -> None:
    """Late messages of the dead meet a stranger's column as late as can be."""
    incarnations, _, _ = make_incarnations()
    one = prepared(incarnations)
    incarnations.remove(one.number)
    incarnations.release_column(one.number)

    assert column_of(prepared(incarnations).number) != column_of(one.number)


def test_the_board_shows_who_is_ready_until_it_is_reaped() -> None:
    """Each change has a new version, so that senders look again."""
    incarnations, board, _ = make_incarnations()
    made = prepared(incarnations)
    column = column_of(made.number)
    assert (int(board.columns[column, VISIBLE]), int(board.head[HEAD_VERSION])) == (0, 0)

    incarnations.show(made)
    assert (int(board.columns[column, VISIBLE]), int(board.head[HEAD_VERSION]), made.ready) == (1, 1, True)
    incarnations.remove(made.number)
    assert (int(board.columns[column, VISIBLE]), int(board.head[HEAD_VERSION])) == (0, 2)


def test_the_call_in_which_it_died_is_told_at_the_reap() -> None:
    """None when it was in none."""
    incarnations, board, _ = make_incarnations()
    inside, outside = prepared(incarnations), prepared(incarnations)
    for made in (inside, outside):
        board.columns[column_of(made.number), [RUN_LANE, RUN_COUNT]] = [2, 5]
    board.columns[column_of(inside.number), RUN_STARTED_NS] = 77

    assert incarnations.remove(inside.number) == (2, 5)
    assert incarnations.remove(outside.number) is None


def test_a_call_that_is_too_long_hangs() -> None:
    """By the limit that the process itself gave; whether it turns does not matter."""
    incarnations, board, _ = make_incarnations()
    made = prepared(incarnations)
    incarnations.show(made)
    board.columns[column_of(made.number), [RUN_STARTED_NS, RUN_LIMIT_NS]] = [SECOND_NS, 2 * SECOND_NS]

    assert incarnations.hanging(3 * SECOND_NS, set()) == []
    assert incarnations.hanging(3 * SECOND_NS + 1, set()) == [(made.number, "in one call for more than 2000 ms")]


def test_one_with_work_that_does_not_turn_hangs() -> None:
    """One that turns does not, and neither does one that has nothing to do."""
    incarnations, board, _ = make_incarnations()
    made = prepared(incarnations)
    incarnations.show(made)
    late_ns = MAX_STANDSTILL_NS + 1

    assert incarnations.hanging(0, {made.number}) == []
    assert incarnations.hanging(late_ns, set()) == []
    assert incarnations.hanging(late_ns, {made.number}) == [(made.number, "standing still with work waiting")]
    board.columns[column_of(made.number), TURNS] += 1
    assert incarnations.hanging(2 * late_ns, {made.number}) == []


def test_one_that_still_starts_does_not_hang() -> None:
    """Loading a model and warming up take their time."""
    incarnations, board, _ = make_incarnations()
    made = prepared(incarnations)
    board.columns[column_of(made.number), RUN_STARTED_NS] = 1

    assert incarnations.hanging(10 * SECOND_NS, {made.number}) == []
