"""Child processes as the supervisor sees them: one start of a process, and the posts that starts fill. Neither zmq nor numpy."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from schemas.plan import Plan

from .restarts import Restarts

# Loading and warming up a large model on a busy machine takes a minute; a worker that needs longer hangs in its start.
START_LIMIT_NS = 180_000_000_000


@dataclass(slots=True)
class Child:
    """One live child process."""

    name: str
    pid: int
    pidfd: int
    incarnation: int = 0
    started_ns: int = 0
    ready_ns: int | None = None


@dataclass(slots=True)
class Post:
    """A place that a worker fills: one replica of one process. *start_at_ns* is when to ask for its next start."""

    process: int
    replica: int
    name: str
    restarts: Restarts = field(default_factory=Restarts)
    child: Child | None = None
    start_at_ns: int | None = 0


def make_posts(plan: Plan) -> list[Post]:
    """Return the posts of all workers of a server."""
    return [
        Post(index, replica, f"{process.name}.{replica}")
        for index, process in enumerate(plan.processes)
        for replica in range(process.replicas)
    ]


def child_of(posts: Sequence[Post], incarnation: int) -> Child | None:
    """Return the live child that is this incarnation."""
    return next((post.child for post in posts if post.child is not None and post.child.incarnation == incarnation), None)


def environment(process: int) -> dict[str, str]:
    """Return the environment of a child; -1 is the broker.

    Its threads share one heap: what ZeroMQ's thread gives back in a heap of its own counts against the memory limit for ever.
    """
    return {**os.environ, "MALLOC_ARENA_MAX": "1"} if process < 0 else dict(os.environ)


def reap(child: Child) -> int | None:
    """Return the wait status of a child that is dead, and close its descriptor; None while it lives."""
    if child.pidfd < 0:
        return None
    if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return None
    # What it forked is in its group, and would keep the shared memory: it goes before the reap frees the group's number.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    _, status = os.waitpid(child.pid, 0)
    os.close(child.pidfd)
    child.pidfd = -1
    return status


def why_hanging(child: Child, now_ns: int) -> str:
    """Return why *child* hangs, as far as that is seen from outside: it is stopped, or does not get ready; "" if it does not."""
    if _is_stopped(child.pid):
        return "it is stopped"
    is_starting = child.incarnation > 0 and child.ready_ns is None
    if is_starting and now_ns - child.started_ns > START_LIMIT_NS:
        return f"it was not ready after {START_LIMIT_NS // 1_000_000_000} s"
    return ""


def _is_stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


def status_text(status: int) -> str:
    """Return how a process ended, for people."""
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.waitstatus_to_exitcode(status)}"
