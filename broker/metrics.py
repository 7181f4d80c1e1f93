"""The ledger: what came and how each request ended, per code. Pure counters; owner: the broker's main thread.

received = well-framed requests with a readable route, counted at the socket; each ends in exactly one final, counted when its
reply is sent: answered, refused (1xx, 2xx), failed, superseded, cancelled, or undeliverable.
What is in flight is counted by looking (``Core.in_flight``), never computed as the difference, so that the equation can fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from schemas.status import Code

Snapshot: TypeAlias = dict[str, int | bool | dict[str, int]]


@dataclass(slots=True)
class Ledger:
    """Counts since the start of this epoch."""

    received: int = 0
    answered: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)
    superseded: int = 0
    cancelled: int = 0
    undeliverable: int = 0
    malformed: int = 0
    refused_questions: int = 0
    duplicates: int = 0
    late_hops: int = 0

    def ended(self, code: int, count: int = 1) -> None:
        """Count finals by their code; 0 is a result."""
        if code == 0:
            self.answered += count
        elif code < 300:
            self.refused[code] += count
        elif code == Code.SUPERSEDED:
            self.superseded += count
        elif code == Code.CANCELLED:
            self.cancelled += count
        else:
            self.failed[code] += count

    @property
    def finals(self) -> int:
        """How many requests have ended."""
        by_code = self.refused.total() + self.failed.total()
        return self.answered + by_code + self.superseded + self.cancelled + self.undeliverable

    def snapshot(self, in_flight: int) -> Snapshot:
        """Return the ledger as people and scripts read it; *balanced* compares it with what is really in flight."""
        return {
            "received": self.received,
            "answered": self.answered,
            "refused": self.refused.total(),
            "failed": self.failed.total() + self.undeliverable,
            "superseded": self.superseded,
            "cancelled": self.cancelled,
            "in_flight": in_flight,
            "balanced": self.received == self.finals + in_flight,
            "undeliverable": self.undeliverable,
            "malformed": self.malformed,
            "refused_questions": self.refused_questions,
            "duplicates": self.duplicates,
            "late_hops": self.late_hops,
            "codes": {Code(code).name: count for code, count in sorted(self._codes().items())},
        }

    def _codes(self) -> Counter[int]:
        """Return how often each code was sent; those with a counter of their own are among them."""
        own = Counter({int(Code.SUPERSEDED): self.superseded, int(Code.CANCELLED): self.cancelled})
        return self.refused + self.failed + own


# What of a ledger is told of each client.
_OF_A_CLIENT = ("received", "answered", "refused", "failed", "superseded", "cancelled", "in_flight", "balanced")


def of_client(received: int, finals: Mapping[int, int], in_flight: int) -> dict[str, int | bool]:
    """Return one client's part of the ledger, from what came from it and its finals by code."""
    ledger = Ledger(received=received)
    for code, count in finals.items():
        ledger.ended(code, count)
    whole = ledger.snapshot(in_flight)
    return {name: value for name in _OF_A_CLIENT if isinstance(value := whole[name], int)}
