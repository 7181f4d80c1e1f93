"""What a child is told comes back from its command line, and a child does not outlive its supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from schemas.spawn import Spawn, plan_path, read_spawn, sink_endpoint, worker_endpoint

ROOT = Path(__file__).parents[2]
SPAWN = Spawn(
    name="ticks.0",
    process=3,
    replica=0,
    incarnation=7 << 8 | 2,
    epoch=0xFEDCBA9876543210,
    config="/a dir/with \"quotes\" and ünicode.toml",
    endpoint="ipc:///x/s.ipc",
    control="",
    rebinds=False,
    log_level="INFO",
    directory="/tmp/d",
    board=5,
    arenas=(6, 7),
    leases=(8,),
    channel=-1,
    parent=1,
)  # fmt: skip


def test_it_comes_back_from_the_command_line() -> None:
    """Every field, with its type."""
    assert read_spawn(SPAWN.to_json()) == SPAWN


def test_a_child_inherits_what_it_is_told_of_and_no_more() -> None:
    """-1 is no descriptor."""
    assert SPAWN.descriptors == (5, 6, 7, 8)
    assert replace(SPAWN, channel=9, arenas=(), leases=()).descriptors == (5, 9)


def test_no_two_incarnations_and_no_two_epochs_share_an_endpoint() -> None:
    """A restart on the same endpoint would get the hops of the one before."""
    made = [worker_endpoint("/d", process, number) for process in (0, 1) for number in (257, 513)]
    made += [sink_endpoint("/d", epoch) for epoch in (1, 2, 2**64 - 1)]

    assert len(set(made)) == len(made)
    assert all(endpoint.startswith("ipc:///d/") for endpoint in made)
    assert plan_path("/d") == Path("/d/plan.json")


PARENT = """
import os, sys
child = os.fork()
if child == 0:
    from schemas.spawn import die_with_parent
    die_with_parent(int(sys.argv[1]) or os.getppid())
    print("ready", flush=True)
    os.read(0, 1)
    os._exit(7)
print(child, flush=True)
_, status = os.waitpid(child, 0)
print("exit", os.waitstatus_to_exitcode(status), flush=True)
"""


def start_parent(supervisor: int) -> subprocess.Popen[bytes]:
    """Start a process whose child believes that *supervisor* is its parent; 0 = the one that it really has."""
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, str(supervisor)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )


def test_a_child_dies_with_its_parent() -> None:
    """Killed, without being asked: its end of the pipe closes although nobody told it anything."""
    parent = start_parent(0)
    assert parent.stdout is not None
    parent.stdout.readline()
    assert parent.stdout.readline() == b"ready\n"
    parent.send_signal(signal.SIGKILL)

    # The pipe ends when its last writer is gone: the child.
    assert parent.stdout.read() == b""
    parent.communicate()


def test_a_child_whose_parent_is_dead_already_ends_at_once() -> None:
    """It would have asked too late."""
    parent = start_parent(os.getpid())
    out, _ = parent.communicate(timeout=30)

    assert out.splitlines()[1:] == [b"exit 1"]
