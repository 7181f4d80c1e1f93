"""The ledger: what came and how each request ended, per code. Pure counters; owner: the broker's main thread.

received = well-framed requests with a readable route, counted at the socket; each final is counted when its reply is sent.
What is in flight is counted by looking (``Core.in_flight``), never computed as the difference, so that the equation can fail.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from schemas.status import Code


@dataclass(slots=True)
class Ledger:
    """Counts since the start of this epoch."""

    received: int = 0
    answered: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)
    undeliverable: int = 0
    malformed: int = 0
    refused_questions: int = 0
    duplicates: int = 0
    late_hops: int = 0

    def ended(self, code: int) -> None:
        """Count one final by its code; 0 is a result."""
        if code == 0:
            self.answered += 1
        elif code < 300:
            self.refused[code] += 1
        else:
            self.failed[code] += 1

    @property
    def finals(self) -> int:
        """How many requests have ended."""
        return self.answered + self.refused.total() + self.failed.total() + self.undeliverable

    def snapshot(self, in_flight: int) -> dict[str, int | bool | dict[str, int]]:
        """Return the ledger as people and scripts read it; *balanced* compares it with what is really in flight."""
        return {
            "received": self.received,
            "answered": self.answered,
            "refused": self.refused.total(),
            "failed": self.failed.total() + self.undeliverable,
            "in_flight": in_flight,
            "balanced": self.received == self.finals + in_flight,
            "undeliverable": self.undeliverable,
            "malformed": self.malformed,
            "refused_questions": self.refused_questions,
            "duplicates": self.duplicates,
            "late_hops": self.late_hops,
            "codes": {Code(code).name: count for code, count in sorted((self.refused + self.failed).items())},
        }
