"""Whether a worker waits for messages by looking again and again instead of sleeping. The loop itself is the worker's."""

from __future__ import annotations

import os

from schemas.config import Config
from schemas.plan import Plan

# Broker and supervisor.
OTHER_PROCESSES = 2


def may_spin(config: Config, plan: Plan, process: int, cores: int) -> bool:
    """Return whether the workers of *process* spin: one of their lanes says so, or says "auto" and there is a core for each.

    Args:
        cores: that this server may use. A spinner keeps its core, so "auto" wants one for each process of the server.
    """
    settings = [config.lanes[index].spin for index in plan.processes[process].lanes]
    if True in settings:
        return True
    return "auto" in settings and cores >= sum(kind.replicas for kind in plan.processes) + OTHER_PROCESSES


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0))
