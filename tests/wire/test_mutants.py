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

import pytest
from door import Door, Reply
from fields_text import Checker, fields_text
from mutants import Mutant, Mutator, Part, is_sound, parts_of

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
    accepted: list[bytes] = field(default_factory=list)

    def note(self, mutant: Mutant, parts: list[Part], replies: list[Reply]) -> None:
        """Compare the replies with the headers that asked for them."""
        left = Counter(reply.request_id for reply in replies if reply.code in ALLOWED)
        self.codes.update(reply.code for reply in replies)
        assert len(replies) == sum(not part.is_silent for part in parts), (mutant.kind, mutant.frames, replies)
        for part in parts:
            self.silent += part.is_silent
            self.unreadable += part.request_id is None
            if part.request_id is not None and not part.is_silent:
                self.readable += 1
                self.answered += left[part.request_id] > 0
                left[part.request_id] -= 1
            if is_sound(part.header):
                self.accepted.append(part.header)

    @property
    def share(self) -> float:
        """Of the headers with a readable Route, how many got a reply with their id and an allowed code."""
        return self.answered / self.readable


@pytest.fixture(params=[False, True], ids=["clients", "control"])
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    """The clients' socket, and the control socket."""
    made = Door(is_control=request.param)
    yield made
    made.close()


def resident_bytes() -> int:
    """Return the memory that this process has."""
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * resource.getpagesize()


def test_damaged_messages_are_answered_by_name(door: Door, cpp_fields: Checker) -> None:
    """At least 99 in 100 of those whose Route can be read; the codes are allowed, the ledger balances, and memory does not grow."""
    count = MUTANTS if door.takes_requests else MUTANTS // 10
    mutator, findings = Mutator(seed=1), Findings()
    grown_from = 0
    for done in range(0, count, CHUNK):
        for mutant in mutator.mutants(min(CHUNK, count - done)):
            findings.note(mutant, parts_of(mutant.frames), door.ask(mutant.frames))
        accepted, findings.accepted = findings.accepted, []
        assert cpp_fields(accepted) == [fields_text(header) for header in accepted]
        # The first chunks fill caches that are bounded.
        grown_from = grown_from or resident_bytes()

    print(
        f"{count} messages: {findings.readable} headers with a Route, {findings.share:.4%} answered; {findings.silent} silent, "
    )
    print(
        f"{findings.unreadable} unreadable; codes {dict(findings.codes)}; grown {(resident_bytes() - grown_from) / MIB:.1f} MiB"
    )
    assert findings.share >= 0.99
    assert set(findings.codes) <= ALLOWED
    assert resident_bytes() - grown_from < GROWTH_BYTES
    snapshot = door.core.ledger.snapshot(door.core.in_flight + door.front.outbox.finals_waiting)
    assert snapshot["balanced"]
    assert snapshot["in_flight"] == 0
