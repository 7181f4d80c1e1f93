"""Incarnations: each start of a worker gets a number, a column of the board and, when it is ready, a place on it.

Owner: the broker's main thread, the only writer of the board's head and of each column's first three words.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.arena import Board, LaneArena
from schemas.plan import MAX_COLUMNS
from schemas.words import (
    COLUMN_BITS,
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

# Outside a call, a process that has work and does not turn its loop for this long hangs.
MAX_STANDSTILL_NS = 500_000_000


@dataclass(slots=True)
class Incarnation:
    """One start of a worker, from ``prepare`` to its reap."""

    number: int
    process: int
    ready: bool = False
    turns: int = -1
    moved_ns: int = 0


class Incarnations:
    """All that are not reaped."""

    def __init__(self, board: Board, arenas: list[LaneArena]) -> None:
        self._board = board
        self._arenas = arenas
        self._serial = 0
        self._free = list(range(MAX_COLUMNS - 1, 0, -1))
        self.by_number: dict[int, Incarnation] = {}

    def prepare(self, process: int) -> Incarnation | None:
        """Make a new incarnation with a zeroed column; None when every column is taken by one that is not reaped."""
        if not self._free:
            return None
        column = self._free.pop()
        self._serial += 1
        number = self._serial << COLUMN_BITS | column
        self._board.columns[column] = 0
        for arena in self._arenas:
            arena.held[column] = 0
        self._board.columns[column, PROCESS] = process
        self._board.columns[column, INCARNATION] = number
        made = self.by_number[number] = Incarnation(number, process)
        return made

    def show(self, incarnation: Incarnation) -> None:
        """Put a ready one on the board, so that senders choose it."""
        incarnation.ready = True
        self._board.columns[column_of(incarnation.number), VISIBLE] = 1
        self._board.head[HEAD_VERSION] += 1

    def remove(self, number: int) -> tuple[int, int] | None:
        """Take a reaped one off the board and free its column; return (lane, rows) of the call it died in, None if in none."""
        self.by_number.pop(number)
        column = column_of(number)
        words = self._board.columns[column]
        call = (int(words[RUN_LANE]), int(words[RUN_COUNT])) if words[RUN_STARTED_NS] else None
        words[VISIBLE] = 0
        self._board.head[HEAD_VERSION] += 1
        return call

    def release_column(self, number: int) -> None:
        """Let the column of a reaped one be used again, once its reap is handled."""
        self._free.insert(0, column_of(number))

    def hanging(self, now_ns: int, busy: set[int]) -> list[tuple[int, str]]:
        """Return (number, why) of ready ones that hang: in one call for too long, or standing still with work (in *busy*)."""
        found: list[tuple[int, str]] = []
        for number, incarnation in self.by_number.items():
            if not incarnation.ready:
                continue
            words = self._board.columns[column_of(number)].tolist()
            if words[TURNS] != incarnation.turns:
                incarnation.turns, incarnation.moved_ns = words[TURNS], now_ns
            if words[RUN_STARTED_NS]:
                if now_ns - words[RUN_STARTED_NS] > words[RUN_LIMIT_NS]:
                    found.append((number, f"in one call for more than {words[RUN_LIMIT_NS] // 1_000_000} ms"))
            elif number in busy and now_ns - incarnation.moved_ns > MAX_STANDSTILL_NS:
                found.append((number, "standing still with work waiting"))
        return found
