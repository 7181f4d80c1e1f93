"""The scenarios by name: what is done to a server under load. What must hold in all of them is in ``rig`` and ``command``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bench.chaos import hostile, limits, long_runs, peers
from bench.chaos.place import START_S, wait_until
from bench.chaos.rig import DEATH_S, Rig
from bench.chaos.supply import make_cases
from stages.faults import input_digest

# One in so many requests is the one that kills, or raises.
POISON_EVERY = 200
# How often two processes are down at the same time.
BOTH = 0.15
# What was sent within this of a lost hop may wait for it; the deadline then says so.
SHORT_BUDGET_US = 500_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to go wrong. *own_config*: it brings its own server, whatever config is asked for."""

    about: str
    play: Callable[[Rig], None]
    own_config: bool = False


def kill(rig: Rig) -> None:
    """Kill random stage processes with -9, each when it has work in hand; now and then a second one before the first is back."""
    rig.start()
    while (victim := rig.wait_victim()) is not None:
        rig.strike(*victim)
        other = rig.victim() if rig.random.random() < BOTH else None
        if other is not None:
            rig.strike(*other)
        rig.pause(rig.random.uniform(0.2, 0.8))
    rig.finish()


def stop(rig: Rig) -> None:
    """Stop random stage processes; each must be killed and replaced, and a SIGCONT must find nobody."""
    rig.start()
    found = 0
    while (victim := rig.wait_victim()) is not None:
        if rig.strike(*victim, signal.SIGSTOP) is not None:
            try:
                os.kill(victim[1], signal.SIGCONT)
                found += 1
            except ProcessLookupError:
                pass
        rig.pause(rig.random.uniform(0.2, 0.8))
    rig.facts["found_by_sigcont"] = found
    rig.facts["death_ms"] = max((one.death_ms for one in rig.struck), default=None)
    rig.finish()


def kill_starting(rig: Rig) -> None:
    """Kill a stage process, then its successor while that starts, twice."""
    rig.start()
    while (victim := rig.wait_victim()) is not None:
        name, pid = victim[0], victim[1]
        rig.strike(*victim)
        for _ in range(2):
            pid = _successor(rig, name, pid)
            time.sleep(rig.random.uniform(0, 0.3))
            rig.strike_at_once(name, pid)
        rig.pause(rig.random.uniform(0.2, 0.8))
    rig.finish()


def _successor(rig: Rig, name: str, pid: int) -> int:
    """Wait for the next process of this name and return its pid."""
    wait_until(lambda: rig.server.stages().get(name, (pid,))[0] != pid, f"another {name}", START_S)
    return rig.server.stages()[name][0]


def hang(rig: Rig) -> None:
    """Each stage process hangs inside a call, again and again: it must be killed and its work run again."""
    rig.start(faults="in_call:hang:300")
    rig.wait_death()
    rig.finish()


def slow(rig: Rig) -> None:
    """One call in fifty takes 20 ms longer, and processes stall between taking, writing and sending: all is answered."""
    rig.start(faults="in_call:sleep20ms:50,between_check_and_write:stall:700ms,after_write:stall:900ms,after_send:stall:1100ms")
    rig.pause(rig.setting.seconds)
    _note_deaths(rig)
    rig.finish()


def drop_hop(rig: Rig) -> None:
    """Hops are lost between live processes: the deadline answers. A slot comes back when a process that may hold it is gone,
    so each process is killed now and then."""
    rig.start(faults="hop:drop:400", budget_us=SHORT_BUDGET_US)
    while (victim := rig.wait_victim()) is not None:
        rig.strike(*victim)
        rig.pause(0.5)
    rig.stop_load()
    rig.stop_checkers()
    for name, (pid, _) in rig.server.stages().items():
        rig.strike_at_once(name, pid)
    rig.finish()


def duplicate_hop(rig: Rig) -> None:
    """Every fifth message between processes has its first hop twice."""
    rig.start(faults="hop:duplicate:5")
    rig.pause(rig.setting.seconds)
    rig.facts["late_hops"] = rig.stats()["ledger.late_hops"]
    rig.finish()


def late_hop(rig: Rig) -> None:
    """Every fifth message sends its first hop once more, 20 ms and some lives of its slot later; others are late themselves."""
    rig.start(faults="hop:late:5,after_write:stall:500ms")
    rig.pause(rig.setting.seconds)
    rig.facts["late_hops"] = rig.stats()["ledger.late_hops"]
    rig.finish()


def poison(rig: Rig) -> None:
    """One request in 200 kills each process that runs it: two deaths, QUARANTINED; all others are answered."""
    _with_poison(rig, "abort", "QUARANTINED")


def raise_(rig: Rig) -> None:
    """One request in 200 raises in its stage: it gets the error, its batch mates their answers."""
    _with_poison(rig, "raise", "MODEL_FAILED")


def _with_poison(rig: Rig, action: str, code: str) -> None:
    digest = input_digest(make_cases(rig.setting.supply, 0).poison().tensors)
    spiked = replace(rig.setting.supply, poison_every=POISON_EVERY, poison_code=code)
    rig.serve(faults=f"in_call:{action}:={digest}")
    rig.add_checker(supply=spiked, rate=rig.setting.rate / 2)
    rig.load = rig.helper("load", rig.setting.supply, rate=rig.setting.rate / 2)
    rig.begin()
    rig.pause(rig.setting.seconds)
    rig.stop_load()
    rig.stop_checkers()
    _note_deaths(rig)
    rig.finish()


def _note_deaths(rig: Rig) -> None:
    rig.facts["deaths"] = len(rig.server.events("died"))


def broker_kill(rig: Rig) -> None:
    """Kill the broker: a new epoch begins; what was in flight ends with the old one, everything later is answered."""
    rig.start()
    kills = 0
    while rig.goes_on:
        rig.pause(rig.random.uniform(1.2, 2.0))
        pid, _ = rig.server.children()["broker"]
        at_ns = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        pending = sum(answer["pending"] for answer in rig.order(f"mark {at_ns}"))
        kills += 1
        rig.say(f"broker died with {pending} requests of the checker in flight")
        rig.wait_next_epoch()
        rig.facts["in_hand_at_broker_kill"] = rig.facts.get("in_hand_at_broker_kill", 0) + pending
    rig.facts |= {"broker_kills": kills, "epochs": len(rig.epochs)}
    rig.finish()


def sigterm(rig: Rig) -> None:
    """Tell the server to end under load, again and again: what it had by then is answered, exit code 0, nothing left."""
    rig.begin()
    exits_ms: list[float] = []
    first = True
    while first or rig.goes_on:
        first = False
        exits_ms.append(_one_sigterm(rig))
    rig.facts |= {"sigterms": len(exits_ms), "exit_ms": max(exits_ms)}


def _one_sigterm(rig: Rig) -> float:
    rig.serve()
    for _ in range(2):
        rig.add_checker(outstanding=256, rate=rig.setting.rate / 2)
    time.sleep(rig.random.uniform(0.2, 1.5))
    rig.order("pause")
    wait_until(
        lambda: rig.stats()["ledger.received"] == sum(answer["sent"] for answer in rig.order("count")), "all to arrive", DEATH_S
    )
    at_ns = time.monotonic_ns()
    rig.server.terminate()
    held = sum(answer["pending"] for answer in rig.order("resume"))
    rig.facts["in_hand_at_sigterm"] = rig.facts.get("in_hand_at_sigterm", 0) + held
    code = rig.server.wait()
    took_ms = round((time.monotonic_ns() - at_ns) / 1e6, 1)
    rig.say(f"ended with code {code} after {took_ms:.0f} ms; {held} requests were unanswered when it was told")
    rig.order("pause")
    rig.order(f"end_after {at_ns}")
    rig.stop_checkers()
    rig.note_end(code)
    return took_ms


SCENARIOS: Mapping[str, Scenario] = {
    "kill": Scenario("random stage processes killed with -9, each with work in hand", kill),
    "stop": Scenario("random stage processes stopped", stop),
    "hang": Scenario("stage processes that never return from a call", hang),
    "slow": Scenario("calls that take longer, processes that stall", slow),
    "kill_starting": Scenario("stage processes killed again while they start", kill_starting),
    "drop_hop": Scenario("hops lost between live processes", drop_hop),
    "duplicate_hop": Scenario("hops doubled", duplicate_hop),
    "late_hop": Scenario("hops sent again when their slot has another life", late_hop),
    "corrupt_message": Scenario("damaged messages from another client", hostile.corrupt_message),
    "no_memory": Scenario("a server, and processes under load, without memory", limits.no_memory),
    "no_descriptors": Scenario("a server, and a broker under load, without descriptors", limits.no_descriptors),
    "vanish": Scenario("clients that go away in mid-request", peers.vanish),
    "never_read": Scenario("clients that never read", peers.never_read),
    "poison": Scenario("a request that kills who runs it", poison),
    "raise": Scenario("a request that raises in its stage", raise_),
    "overload": Scenario("five times what a timed stage can do", long_runs.overload, own_config=True),
    "sigterm": Scenario("SIGTERM under load, again and again", sigterm),
    "broker_kill": Scenario("the broker killed with -9", broker_kill),
    "toxics": Scenario("TCP with single bytes, delay, resets, half-open connections", hostile.toxics),
    "soak": Scenario("mixed models and sizes for long, one kill a minute", long_runs.soak, own_config=True),
}
# What `all` leaves out: it means nothing in seconds.
NOT_IN_ALL = ("soak",)
