"""Damaged messages at the broker's door: each gets its answer by name, nothing is ever raised, and C++ takes all that we take.

Every run takes MUTANTS of them, a minute's worth less than the full number:
``SLOTLINE_MUTANTS=200000 pytest tests/wire/test_mutants.py`` takes about two minutes. What was found is printed with ``-s``.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from door import Door, Reply
from fields_text import Checker, fields_text
from mutant_parts import is_sound, parts_of
from mutants import Mutant, Mutator

from schemas.status import Code

MUTANTS = int(os.environ.get("SLOTLINE_MUTANTS", "10000"))
CHUNK = 2_000
MIB = 1 << 20
# What a broken request may be answered with where no overload and no shutdown has a say; -1 is the answer to a question.
ALLOWED = {-1, 0, *(code for code in Code if 100 <= code < 200), Code.MODEL_FAILED, Code.DEADLINE_EXCEEDED}
GROWTH_BYTES = 32 * MIB


@dataclass
class Findings:
    """What became of the headers that were sent."""

    readable: int = 0
    answered: int = 0
    silent: int = 0
    unreadable: int = 0
    codes: Counter[int] = field(default_factory=Counter)

    def note(self, mutant: Mutant, replies: list[Reply]) -> None:
        """Compare the replies to a message with the headers that asked for them."""
        parts = parts_of(mutant.frames)
        assert len(replies) == sum(not part.is_silent for part in parts), (mutant.kind, mutant.frames, replies)
        left = Counter(reply.request_id for reply in replies if reply.code in ALLOWED)
        self.codes.update(reply.code for reply in replies)
        for part in parts:
            self.silent += part.is_silent
            self.unreadable += part.request_id is None
            if part.request_id is not None and not part.is_silent:
                self.readable += 1
                self.answered += left[part.request_id] > 0
                left[part.request_id] -= 1

    @property
    def share(self) -> float:
        """Of the headers with a readable Route, how many got a reply with their id and an allowed code."""
        return self.answered / self.readable

    def __str__(self) -> str:
        """Say all of it."""
        heard = f"{self.readable} headers with a Route, {self.share:.3%} answered; {self.silent} silent by right"
        return f"{heard}; {self.unreadable} without a Route; codes {dict(sorted(self.codes.items()))}"


@pytest.fixture(params=[False, True], ids=["clients", "control"])
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    """The clients' socket, and the control socket."""
    made = Door(is_control=request.param)
    yield made
    made.close()


def resident_bytes() -> int:
    """Return the memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_damaged_messages_are_answered_by_name(door: Door) -> None:
    """At least 99 in 100 of those whose Route can be read; with an allowed code; the books balance, and memory does not grow."""
    count = MUTANTS if door.takes_requests else MUTANTS // 10
    mutator, findings, grown_from = Mutator(seed=1), Findings(), 0
    for number, mutant in enumerate(mutator.mutants(count)):
        findings.note(mutant, door.ask(mutant.frames))
        if number == min(CHUNK, count - 1):
            # Caches that are bounded are full by now.
            grown_from = resident_bytes()
    grown = resident_bytes() - grown_from

    print(f"{count} messages: {findings}; grown by {grown / MIB:.1f} MiB")
    assert findings.share >= 0.99
    assert set(findings.codes) <= ALLOWED
    assert grown < GROWTH_BYTES
    snapshot = door.core.ledger.snapshot(door.core.in_flight + door.front.outbox.finals_waiting)
    assert snapshot["balanced"]
    assert snapshot["in_flight"] == 0


def test_cpp_takes_every_damaged_header_that_we_take_and_reads_the_same(cpp_fields: Checker) -> None:
    """The verifier of the C++ library, which knows nothing of ours."""
    mutator, taken = Mutator(seed=1), 0
    for done in range(0, MUTANTS, CHUNK):
        parts = [part for mutant in mutator.mutants(min(CHUNK, MUTANTS - done)) for part in parts_of(mutant.frames)]
        # A Packed message repeats what one header says.
        sound = [header for header in {part.header for part in parts} if is_sound(header)]
        assert cpp_fields(sound) == [fields_text(header) for header in sound]
        taken += len(sound)

    print(f"{taken} sound headers")
    assert taken > MUTANTS // 10
