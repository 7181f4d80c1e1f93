"""What became of each id that the checker has sent. Pure: no socket, no clock; times come in as ns of the monotonic clock.

Every id ends as exactly one of: ok, error (by code), wrong (another answer than its content says), ended_by_epoch (its broker or
its connection died first and nobody can answer it any more), lost. An id that is answered again is doubled; an id that was never
sent is strange.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bench.chaos.cases import Expected


@dataclass(slots=True)
class Sent:
    """An id without an answer."""

    expected: Expected
    sent_ns: int


@dataclass(slots=True)
class Judge:
    """All ids of one connection, counted from 1."""

    next_id: int = 1
    pending: dict[int, Sent] = field(default_factory=dict)
    given_up: dict[int, Sent] = field(default_factory=dict)
    ok: int = 0
    expected_errors: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    strange: list[int] = field(default_factory=list)
    ok_ns: array[int] = field(default_factory=lambda: array("q"))
    error_ns: array[int] = field(default_factory=lambda: array("q"))
    recoveries_ns: list[int] = field(default_factory=list)
    _marks: list[int] = field(default_factory=list)

    def send(self, expected: Expected, now_ns: int) -> int:
        """Return the id of a new request."""
        request_id = self.next_id
        self.next_id += 1
        self.pending[request_id] = Sent(expected, now_ns)
        return request_id

    def answer(self, request_id: int, outcome: Expected | None, now_ns: int) -> str:
        """Class one final: outputs by name, the name of an error code, or None for what is neither. Return the class."""
        sent = self.pending.pop(request_id, None) or self.given_up.pop(request_id, None)
        if sent is None:
            seen = 0 < request_id < self.next_id
            (self.doubled if seen else self.strange).append(request_id)
            return "doubled" if seen else "strange"
        if isinstance(outcome, str):
            return self._error(sent, outcome, now_ns)
        if outcome is None or outcome != sent.expected:
            self.wrong.append(request_id)
            return "wrong"
        self.ok += 1
        self.ok_ns.append(now_ns - sent.sent_ns)
        if self._marks:
            self._recovered(sent.sent_ns, now_ns)
        return "ok"

    def _error(self, sent: Sent, code: str, now_ns: int) -> str:
        self.errors[code] += 1
        self.expected_errors += code == sent.expected
        self.error_ns.append(now_ns - sent.sent_ns)
        return code

    def _recovered(self, sent_ns: int, now_ns: int) -> None:
        """A request that was sent after a death was answered: whoever died is replaced."""
        self.recoveries_ns += [now_ns - mark for mark in self._marks if mark < sent_ns]
        self._marks = [mark for mark in self._marks if mark >= sent_ns]

    def mark(self, at_ns: int) -> None:
        """Note that something was killed at *at_ns*."""
        self._marks.append(at_ns)

    def end_epoch(self) -> None:
        """Wait no longer for what is pending: who could answer is dead. An answer that comes all the same must be right."""
        self.given_up |= self.pending
        self.pending = {}

    def end_after(self, at_ns: int) -> None:
        """The same for what was sent after *at_ns*, when the server was told to end; what it had before it owes."""
        late = {request_id: sent for request_id, sent in self.pending.items() if sent.sent_ns > at_ns}
        self.given_up |= late
        self.pending = {request_id: sent for request_id, sent in self.pending.items() if request_id not in late}

    @property
    def sent(self) -> int:
        """How many ids were sent."""
        return self.next_id - 1

    def report(self) -> dict[str, Any]:
        """Return the counts; what is pending now is lost."""
        return {
            "sent": self.sent,
            "ok": self.ok,
            "errors": dict(sorted(self.errors.items())),
            "expected_errors": self.expected_errors,
            "lost": len(self.pending),
            "doubled": len(self.doubled),
            "wrong": len(self.wrong) + len(self.strange),
            "ended_by_epoch": len(self.given_up),
            "not_recovered": len(self._marks),
            "examples": {
                "lost": sorted(self.pending)[:5],
                "doubled": self.doubled[:5],
                "wrong": self.wrong[:5],
                "strange": self.strange[:5],
            },
        }
