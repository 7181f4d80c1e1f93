"""Scenarios of a machine that has no more to give: a clear refusal or right answers, never a silent hang."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from bench.chaos import lanes
from bench.chaos.place import ChaosServer, wait_nothing_left, wait_until
from bench.chaos.rig import Rig
from schemas.status import ConfigError

MIB = 1 << 20
# From what not even Python starts in, to what a small server needs.
MEMORY_LIMITS_MIB = (48, 96, 160, 256, 512)
DESCRIPTOR_LIMITS = (8, 16, 24, 48)
# A refusal must come by itself within this.
REFUSAL_S = 60.0
# What a process under load is left with.
SPARE_BYTES = 256 * 1024
FEW_DESCRIPTORS = 128


def no_memory(rig: Rig) -> None:
    """Refuse a start that does not fit; under load, take the memory from one stage process after the other."""
    refusals = [_try(rig, "slots of 4 TiB", lanes.too_large(), None)]
    for mib in MEMORY_LIMITS_MIB:
        refusals.append(_try(rig, f"RLIMIT_AS {mib} MiB", rig.setting.config, _limit(resource.RLIMIT_AS, mib * MIB)))
    rig.facts["starts"] = refusals
    rig.facts["silent"] = sum(not one["told"] for one in refusals)
    rig.start()
    squeezed = 0
    # Nothing is struck here, so that the rig would wait for a first victim again and again.
    while (rig.goes_on or not squeezed) and (victim := rig.wait_victim()) is not None:
        name, pid, _ = victim
        with contextlib.suppress(OSError):
            size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.prlimit(pid, resource.RLIMIT_AS, (size + SPARE_BYTES, resource.RLIM_INFINITY))
            squeezed += 1
            rig.say(f"{name} has no memory left")
            rig.pause(0.5)
            resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    rig.facts |= {"squeezed": squeezed, "deaths": len(rig.server.events("died"))}
    rig.finish()


def no_descriptors(rig: Rig) -> None:
    """Refuse a start without descriptors; under load, take them all by clients that connect, and kill a stage meanwhile.

    On an ipc endpoint libzmq 4.3 ends the process that runs out of them (by an assertion): the broker is then started
    again, and what was in flight ends with its epoch. That is counted, and is no silent hang.
    """
    refusals = []
    for limit in DESCRIPTOR_LIMITS:
        refusals.append(_try(rig, f"RLIMIT_NOFILE {limit}", rig.setting.config, _limit(resource.RLIMIT_NOFILE, limit)))
    rig.facts["starts"] = refusals
    rig.facts["silent"] = sum(not one["told"] for one in refusals)
    rig.start(prepare=_limit(resource.RLIMIT_NOFILE, FEW_DESCRIPTORS))
    crowds = 0
    while rig.goes_on:
        with _crowd(rig.server.endpoint, 2 * FEW_DESCRIPTORS):
            crowds += 1
            rig.say("every descriptor of the broker is taken")
            rig.pause(1.0)
            victim = rig.victim()
            if victim is not None and not rig.server.events("broker_died"):
                rig.strike(*victim)
            rig.pause(1.0)
        rig.follow_epoch()
        rig.pause(1.0)
    rig.facts |= {"crowds": crowds, "broker_deaths": len(rig.server.events("broker_died"))}
    rig.finish()


@contextlib.contextmanager
def _crowd(endpoint: str, count: int) -> Any:
    """Hold *count* connections to *endpoint*, as far as it takes them."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets = []
    try:
        for _ in range(count):
            socket = context.socket(zmq.DEALER)
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(endpoint)
            sockets.append(socket)
        yield
    finally:
        for socket in sockets:
            socket.close()
        context.term()


def _limit(which: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(which, (value, value))


def _try(rig: Rig, case: str, config: str | Path, prepare: Callable[[], None] | None) -> dict[str, Any]:
    """Try to start a server; return what it said. *told*: it served, or ended by itself with a line."""
    (rig.place / "stderr").unlink(missing_ok=True)
    server = ChaosServer(rig.place, config, prepare=prepare)
    began = time.monotonic()
    try:
        server.launch()
        with contextlib.suppress(ConfigError):
            wait_until(lambda: server.is_ready or server.poll() is not None, case, REFUSAL_S)
        found = _outcome(server)
    except (OSError, RuntimeError) as error:
        # Not even the interpreter could be started: the system said so.
        found = {"told": True, "code": None, "line": str(error)}
    finally:
        server.destroy()
    left = wait_nothing_left(rig.place)
    rig.sweep()
    rig.say(f"{case}: {found['line']}")
    return {"case": case, **found, "left_behind": left, "seconds": round(time.monotonic() - began, 1)}


def _outcome(server: ChaosServer) -> dict[str, Any]:
    code = server.poll()
    if server.is_ready and code is None:
        server.terminate()
        return {"told": True, "code": server.wait(), "line": "serves"}
    line = server.last_line()
    return {"told": code is not None and code != 0 and line != "it wrote nothing", "code": code, "line": line}
