"""What the supervisor can see of a child from outside."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from broker.children import START_LIMIT_NS, Child, reap, status_text, why_hanging


@pytest.fixture
def child() -> Iterator[Child]:
    """A worker that sleeps, started at time 0."""
    process = subprocess.Popen(["sleep", "60"])
    process.returncode = 0  # reaped by the test
    made = Child("ticks.0", process.pid, os.pidfd_open(process.pid), incarnation=257)
    yield made
    if made.pidfd >= 0:
        os.kill(made.pid, signal.SIGKILL)
        os.waitpid(made.pid, 0)
        os.close(made.pidfd)


def test_a_worker_that_is_not_ready_in_time_hangs(child: Child) -> None:
    """Up to the limit it is starting; after it, it hangs."""
    assert why_hanging(child, START_LIMIT_NS) == ""
    assert why_hanging(child, START_LIMIT_NS + 1) == "it was not ready after 180 s"


def test_a_worker_that_is_ready_does_not_hang_in_its_start(child: Child) -> None:
    """Once ready, its age says nothing."""
    child.ready_ns = 5

    assert why_hanging(child, 10 * START_LIMIT_NS) == ""


def test_a_stopped_process_hangs(child: Child) -> None:
    """State T is seen in /proc."""
    os.kill(child.pid, signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)

    assert why_hanging(child, 0) == "it is stopped"


def test_a_dead_child_is_reaped_once(child: Child) -> None:
    """reap gives nothing while it lives, then its status, then nothing again."""
    assert reap(child) is None
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    status = reap(child)

    assert status is not None
    assert status_text(status) == "signal SIGKILL"
    assert reap(child) is None
