"""The ledger counts each final under its code and says whether received, finals and what is in flight are equal."""

from __future__ import annotations

import pytest

from broker.metrics import Ledger
from schemas.status import Code


@pytest.mark.parametrize("code", list(Code))
def test_every_code_ends_a_request_in_exactly_one_way(code: Code) -> None:
    """1xx and 2xx were not taken, 3xx and 4xx were; what a client ends by its own act is no failure."""
    ledger = Ledger(received=1)
    ledger.ended(code)

    seen = ledger.snapshot(0)
    own = {Code.NONE: "answered", Code.SUPERSEDED: "superseded", Code.CANCELLED: "cancelled"}
    kind = own.get(code) or ("refused" if code.is_refusal else "failed")
    kinds = ("answered", "refused", "failed", "superseded", "cancelled")
    assert {key: seen[key] for key in kinds} == dict.fromkeys(kinds, 0) | {kind: 1}
    assert seen["codes"] == ({} if code == Code.NONE else {code.name: 1})
    assert seen["balanced"]


def test_what_could_not_be_delivered_is_a_final() -> None:
    """It counts as failed: nobody got it."""
    ledger = Ledger(received=3, answered=1, undeliverable=1)

    assert ledger.finals == 2
    assert ledger.snapshot(1)["failed"] == 1
    assert ledger.snapshot(1)["balanced"]


@pytest.mark.parametrize(("received", "in_flight"), [(5, 2), (3, 2), (4, 1), (4, 3)])
def test_a_request_or_final_that_is_not_accounted_for_is_an_alarm(received: int, in_flight: int) -> None:
    """In either direction."""
    ledger = Ledger(received=4, answered=2)
    assert ledger.snapshot(2)["balanced"]
    ledger.received = received

    assert not ledger.snapshot(in_flight)["balanced"]


def test_what_is_no_request_is_outside() -> None:
    """Malformed messages, late hops and duplicates do not enter the equation by themselves."""
    assert Ledger(malformed=3, late_hops=2, duplicates=1).snapshot(0)["balanced"]
