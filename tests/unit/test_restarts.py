"""When a process that died is started again."""

from __future__ import annotations

from broker.restarts import BACK_OFF_NS, CRASH_LOOP_NS, SERVED_NS, Restart, Restarts

MS = 1_000_000
NEVER_READY = None


def test_each_quick_death_makes_it_more_patient() -> None:
    """At once, then 0.1, 0.4 and 1.6 s after the death."""
    restarts = Restarts()

    waits = [restarts.died(at, NEVER_READY).at_ns - at for at in (0, 100 * MS, 300 * MS, 900 * MS)]

    assert waits == [0, 100 * MS, 400 * MS, 1600 * MS]


def test_the_fifth_quick_death_in_half_a_minute_is_a_crash_loop() -> None:
    """It is tried again after half a minute."""
    restarts = Restarts()
    for at in range(4):
        assert not restarts.died(at, NEVER_READY).is_crash_loop

    assert restarts.died(4, NEVER_READY) == Restart(4 + CRASH_LOOP_NS, True)


def test_quick_deaths_of_long_ago_do_not_count() -> None:
    """Five deaths, but never five within half a minute."""
    restarts = Restarts()

    assert not any(restarts.died(at * CRASH_LOOP_NS // 3, at * CRASH_LOOP_NS // 3 - 1).is_crash_loop for at in range(12))


def test_a_process_that_served_begins_anew() -> None:
    """Kills from outside are no crash loop, however many."""
    restarts = Restarts()
    for at in range(4):
        restarts.died(at, NEVER_READY)
    ready_ns = 5 * MS

    for _ in range(20):
        died_ns = ready_ns + SERVED_NS
        assert restarts.died(died_ns, ready_ns) == Restart(died_ns, False)
        ready_ns = died_ns + MS


def test_a_process_that_was_ready_for_a_moment_did_not_serve() -> None:
    """It counts as a quick death."""
    restarts = Restarts()
    restarts.died(0, NEVER_READY)

    assert restarts.died(SERVED_NS + 1, 2) == Restart(SERVED_NS + 1 + BACK_OFF_NS[1], False)


def test_a_crash_loop_is_tried_every_half_minute_until_it_serves() -> None:
    """The deaths that began it are long ago by then; one more is enough to go on."""
    restarts = Restarts()
    for at in range(5):
        restarts.died(at, NEVER_READY)
    tried_ns = 4 + CRASH_LOOP_NS + MS

    assert restarts.died(tried_ns, NEVER_READY) == Restart(tried_ns + CRASH_LOOP_NS, True)
    served_ns = tried_ns + CRASH_LOOP_NS + SERVED_NS
    assert restarts.died(served_ns, served_ns - SERVED_NS) == Restart(served_ns, False)
    assert restarts.died(served_ns + MS, NEVER_READY) == Restart(served_ns + MS, False)


def test_five_starts_in_a_row_that_never_get_ready_are_a_crash_loop_however_long_each_takes() -> None:
    """A start that hangs is killed after minutes: the half minute of the window would forget it."""
    restarts = Restarts()
    hour_ns = 3600 * 10**9

    loops = [restarts.died(at * hour_ns, None).is_crash_loop for at in range(1, 6)]

    assert loops == [False, False, False, False, True]


def test_a_start_that_got_ready_ends_the_row_of_those_that_did_not() -> None:
    """Even if it served for less than a second."""
    restarts = Restarts()
    hour_ns = 3600 * 10**9
    for at in range(1, 5):
        restarts.died(at * hour_ns, None)

    restarts.died(5 * hour_ns, 5 * hour_ns - 1)

    assert not restarts.died(6 * hour_ns, None).is_crash_loop


def test_deaths_in_a_call_close_no_lane() -> None:
    """Three requests that kill cost six deaths within seconds; they are given up, and the others are served."""
    restarts = Restarts()

    assert [restarts.died(at * MS, at * MS - 1, in_call=True) for at in range(1, 8)] == [
        Restart(at * MS + BACK_OFF_NS[1], False) for at in range(1, 8)
    ]
