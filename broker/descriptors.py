"""How many open files a server needs before its first client: ZeroMQ has no graceful way to run out of them."""

from __future__ import annotations

import resource

from schemas.plan import Plan
from schemas.status import ConfigError

# The broker's own sockets, pipes, memory and modules, counted on a running one (23) with room.
_OWN = 40
# For each worker: the way to it, its way back, and both again while a successor starts.
_PER_WORKER = 4


def check_descriptors(plan: Plan) -> None:
    """Refuse to start when this process may not open the files that *plan* needs.

    Raises:
        ConfigError: the limit and the cure.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _OWN + _PER_WORKER * sum(process.replicas for process in plan.processes)
    if most != resource.RLIM_INFINITY and most < needed:
        needs = f"{needed} are needed before the first client"
        raise ConfigError(f"only {most} open files are allowed and {needs}: raise the hard limit (ulimit -Hn)")
