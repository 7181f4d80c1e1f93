"""Which worker processes a config needs: one set for each lane, or for each group of lanes that share theirs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.config import LaneConfig
from schemas.plan import MAX_COLUMNS, ProcessPlan
from schemas.status import ConfigError

# Each start of a worker needs a column of the board, and keeps it until its reap is handled: some stay free for replacements.
MAX_WORKERS = MAX_COLUMNS - 28


def join_processes(lane: LaneConfig, index: int, processes: list[ProcessPlan], groups: dict[str, int]) -> list[int]:
    """Return which server process serves each part of the lane's cut; lanes of one ``workers`` group share theirs.

    *groups* has the processes of all groups by name: a lane that is named like a group is not in it.
    """
    numbers: list[int] = []
    for stages, replicas in zip(lane.processes, lane.process_replicas, strict=True):
        owner = lane.workers or lane.name
        name = f"{owner}.{'+'.join(stages)}" if len(lane.processes) > 1 else owner
        number = groups.setdefault(name, len(processes)) if lane.workers else len(processes)
        if number == len(processes):
            processes.append(ProcessPlan(name, (), replicas))
        processes[number] = ProcessPlan(name, (*processes[number].lanes, index), replicas)
        numbers.append(number)
    return numbers


def check_count(processes: Sequence[ProcessPlan], source: str) -> None:
    """Refuse a config that needs more workers than the board has room for.

    Raises:
        ConfigError: one line with the cure.
    """
    count = sum(process.replicas for process in processes)
    if count > MAX_WORKERS:
        raise ConfigError(
            f"{source}: needs {count} worker processes; expected at most {MAX_WORKERS}: "
            "let lanes share theirs (workers), use fewer replicas, or a cut with fewer processes"
        )
