"""Numbers of the board's words, and its size. No numpy: the supervisor reads the broker's beat through a plain memoryview."""

from __future__ import annotations

from .plan import MAX_COLUMNS

# A column of the board, 16 words. Writer: B = broker, P = the column's process.
INCARNATION = 0  # B: whose column this is, 0 = nobody's
PROCESS = 1  # B: index in Plan.processes
VISIBLE = 2  # B: 1 = senders may choose it
TURNS = 4  # P: loop turns; standing still with work waiting is hanging
RUN_STARTED_NS = 5  # P: start of the running call into stage code, 0 = not in one
RUN_LANE = 6  # P: lane of that call
RUN_COUNT = 7  # P: how many (slot, generation) pairs of run_pairs it covers
RUN_LIMIT_NS = 8  # P: a call longer than this hangs
STALE = 9  # P: hops dropped because their slot had moved on
GPU_POOL_BYTES = 10  # P: memory it has on a GPU, 0 without one
GPU_PINNED_BYTES = 11  # P: memory it has page-locked for a GPU
COLUMN_WORDS = 16

# Head of the board, 8 words, all the broker's.
HEAD_EPOCH = 0
HEAD_VERSION = 1  # +1 whenever a column's VISIBLE or INCARNATION changed
HEAD_BEAT_NS = 2  # the broker's last turn
HEAD_WORDS = 8

BOARD_WORDS = HEAD_WORDS + MAX_COLUMNS * COLUMN_WORDS
BOARD_BYTES = BOARD_WORDS * 8

BROKER = 0  # the broker's incarnation and column
COLUMN_BITS = 8


def column_of(incarnation: int) -> int:
    """Return the column of an incarnation: its low byte."""
    return incarnation & ((1 << COLUMN_BITS) - 1)
