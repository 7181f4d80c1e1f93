"""The books of the generator in Python: the schedule, and what counts as measured."""

from __future__ import annotations

import pytest

from bench.load import Load
from bench.slow_account import NS_PER_S, Account


def make_account(*, rate: float = 0.0, is_poisson: bool = False) -> Account:
    """Return the books of 1 s of warm-up and 2 s of measuring, which begin at 0."""
    return Account(Load(8, rate=rate, is_poisson=is_poisson, seconds=2.0, warm_up_s=1.0), start_ns=0)


def test_a_constant_schedule_has_equal_distances() -> None:
    """1,000 of them at 500/s are 2 s."""
    account = make_account(rate=500)
    for _ in range(1000):
        account.schedule_next()

    assert account.next_due_ns == pytest.approx(2 * NS_PER_S)


def test_a_poisson_schedule_has_the_wanted_mean() -> None:
    """With different distances; five standard deviations of 10,000 of them are 5 %."""
    account = make_account(rate=500, is_poisson=True)
    distances = []
    for _ in range(10_000):
        before = account.next_due_ns
        account.schedule_next()
        distances.append(account.next_due_ns - before)

    assert account.next_due_ns == pytest.approx(20 * NS_PER_S, rel=0.05)
    assert len(set(distances)) == len(distances)


def test_latency_runs_from_the_due_time_and_the_warm_up_does_not_count() -> None:
    """What was due before, or came after, the measured time is answered and not measured."""
    account = make_account(rate=1)
    for due_ns, sent_ns, answered_ns in ((0.5, 0.5, 1.5), (1.5, 1.7, 2.0), (2.9, 2.9, 3.5)):
        request_id = account.book_sent(int(due_ns * NS_PER_S), int(sent_ns * NS_PER_S))
        account.book_echo(request_id, int(answered_ns * NS_PER_S))

    report = account.report(client_cpu_s=0.0)
    assert (report["ok"], report["rate"], report["max_ns"]) == (3, 1.0, int(0.6 * NS_PER_S))
    assert (report["late_us"], report["late_max_us"]) == (pytest.approx(100_000), pytest.approx(200_000))
    assert [window["rate"] for window in report["windows"]] == [0, 2, 2, 0]
