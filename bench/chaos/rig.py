"""One chaos run: server, checker and load together, what is done to them, and what the result says."""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.chaos.checker import Task
from bench.chaos.helpers import Helper
from bench.chaos.memory import ServerMemory
from bench.chaos.place import START_S, ChaosServer, wait_nothing_left, wait_until
from bench.chaos.supply import Supply
from bench.chaos.wire_peer import statistics
from schemas.params import Params
from schemas.status import ConfigError

# Less than a second after it is ready a death counts as one of a start, and five of those close the lane as a crash loop: that
# is another scenario's affair.
GROWN_UP_S = 1.2
# How long a kill waits for a victim with work in hand.
AIM_S = 3.0
DEATH_S = 60.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run is asked for: the server's config (text, or the path of a user's file), what is sent, for how long, how fast.

    Args:
        rate: requests a second of checker and load together; 0 = closed loops.
        log: directory for the checkers' logs, None = none.
    """

    config: str | Path
    supply: Supply
    seconds: float
    rate: float
    seed: int
    cut: str
    log: Path | None = None


@dataclass(slots=True)
class Struck:
    """What was killed or stopped, and what it had in hand."""

    name: str
    in_hand: int
    in_call: bool
    death_ms: float


@dataclass(slots=True)
class Totals:
    """Sums over all servers and checkers of a run."""

    sent: int = 0
    ok: int = 0
    expected_errors: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    ended_by_epoch: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    recoveries_ms: list[float] = field(default_factory=list)
    balanced: bool = True
    left_behind: list[str] = field(default_factory=list)


class Rig:
    """The parts of one run, in a directory of their own."""

    def __init__(self, setting: Setting, place: Path, say: Say) -> None:
        self.setting = setting
        self.place = place
        self.say = say
        self.random = random.Random(setting.seed)
        self.totals = Totals()
        self.struck: list[Struck] = []
        self.facts: dict[str, Any] = {}
        self.checkers: list[Helper] = []
        self.load: Helper | None = None
        self._ready_since: dict[int, float] = {}
        self.epochs: list[int | float | str | bool] = []
        self._made = 0
        self._most_up = 0
        self._until = 0.0
        self._began = 0.0

    # --- life ------------------------------------------------------------------------------------------------------------

    def serve(self, **options: Any) -> ChaosServer:
        """Start the server; *options* are ChaosServer's."""
        config = options.pop("config", self.setting.config)
        # Known before it is waited for: whoever interrupts the wait must leave no server behind.
        self.server = ChaosServer(self.place, config, **options)
        self.server.start()
        self._enter_epoch()
        return self.server

    def _enter_epoch(self) -> None:
        """Note the server's present life, and map its memory."""
        self.epochs.append(self.stats()["epoch"])
        self.memory = ServerMemory(self.server)
        self._most_up = 0

    def wait_next_epoch(self) -> None:
        """Wait until the next life of the broker serves; what was in flight ended with the last one."""
        wait_until(self._has_begun, "the next epoch", START_S)
        self._enter_epoch()
        self.order("end_epoch")

    def _has_begun(self) -> bool:
        with contextlib.suppress(ConfigError):
            stats = self.stats()
            return stats["state"] == "serving" and stats["epoch"] not in self.epochs
        return False

    def follow_epoch(self) -> None:
        """Wait until the server serves, whether it is the same life or not."""
        wait_until(lambda: self.stats()["state"] == "serving", "a server that serves", START_S)
        if self.stats()["epoch"] not in self.epochs:
            self.wait_next_epoch()

    def start(self, *, supply: Supply | None = None, budget_us: int = 60_000_000, **options: Any) -> None:
        """Start server, checker and load, and the clock of the run."""
        self.serve(**options)
        half = self.setting.rate / 2
        self.add_checker(supply=supply, budget_us=budget_us, rate=half)
        self.load = self.helper("load", supply or self.setting.supply, rate=half, budget_us=budget_us)
        self.begin()

    def begin(self) -> None:
        """Start the clock of the run."""
        self._began = time.monotonic()
        self._until = self._began + self.setting.seconds

    def add_checker(self, *, supply: Supply | None = None, **task: Any) -> Helper:
        """Start one more checker on the server."""
        made = self.helper("checker", supply or self.setting.supply, **task)
        self.checkers.append(made)
        return made

    def helper(self, name: str, supply: Supply, **task: Any) -> Helper:
        """Start a checker or a load on the server."""
        self._made += 1
        log = (
            "" if self.setting.log is None or name != "checker" else str(self.setting.log / f"{self.place.name}-{self._made}.log")
        )
        whole = Task(self.server.endpoint, supply, seed=self.setting.seed + self._made, log=log, **task)
        return Helper(name, whole, self.place / f"task-{self._made}.json")

    @property
    def goes_on(self) -> bool:
        """True until the run's time is over."""
        return time.monotonic() < self._until

    def pause(self, seconds: float) -> None:
        """Let the load run for a while, but not beyond the run's time."""
        time.sleep(max(0.0, min(seconds, self._until - time.monotonic())))

    def wait_death(self) -> None:
        """Let the load run for the run's time, and on until a process has died of its faults; note how many did."""
        self.pause(self.setting.seconds)
        wait_until(lambda: self.server.events("died"), "a death", START_S)
        self.facts["deaths"] = len(self.server.events("died"))

    def stop_load(self) -> None:
        """End the load and take its report."""
        if self.load is not None:
            report = self.load.order("stop")
            self.load.close()
            self.load = None
            self.facts["load"] = report
            self.totals.wrong += report["wrong"]

    def stop_checkers(self) -> None:
        """Let the checkers have their last answers, and add up what they say."""
        for checker in self.checkers:
            report = checker.order("finish")
            checker.close()
            self.facts.setdefault("seconds_loaded", round(time.monotonic() - self._began, 1))
            totals = self.totals
            for name in ("sent", "ok", "expected_errors", "lost", "doubled", "wrong", "ended_by_epoch"):
                setattr(totals, name, getattr(totals, name) + report[name])
            totals.errors.update(report["errors"])
            totals.recoveries_ms += report["recoveries_ms"]
            self.facts["ok_ms"], self.facts["error_ms"] = report["ok_ms"], report["error_ms"]
            if any(report["examples"].values()):
                self.facts.setdefault("examples", []).append(report["examples"])
        self.checkers = []

    def finish(self) -> None:
        """End load and checkers, read the books, end the server, look for what is left."""
        self.stop_load()
        self.stop_checkers()
        self.check_books()
        self.end_server()

    def check_books(self) -> None:
        """Note whether the ledger balances with nothing in flight and every slot free, once the server has come to rest."""
        with contextlib.suppress(ConfigError):
            wait_until(lambda: not self.unrest(), "a server at rest", DEATH_S)
        unrest = self.unrest()
        if unrest:
            self.totals.balanced = False
            self.facts["unrest"] = unrest

    def unrest(self) -> list[str]:
        """Return what is not as in a server that has nothing to do."""
        stats = statistics(self.server.control)
        found = [] if stats["ledger.balanced"] else ["the ledger does not balance"]
        if stats["ledger.in_flight"]:
            found.append(f"{stats['ledger.in_flight']} in flight")
        for name, value in stats.items():
            if name.endswith(".slots") and stats[name + "_free"] != value:
                found.append(f"{name}_free {stats[name + '_free']} of {value}")
        return found

    def end_server(self) -> None:
        """End the server, and look for what it left."""
        self.server.terminate()
        self.note_end(self.server.wait())

    def note_end(self, code: int) -> None:
        """Note how the server ended and what it left."""
        if code:
            self.totals.left_behind.append(f"exit code {code}")
        self.totals.left_behind += wait_nothing_left(self.place)

    def sweep(self) -> None:
        """Remove the private directories that servers left which were killed."""
        for path in self.place.glob("slotline-*"):
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """End by force whatever runs, after a failure."""
        for helper in [*self.checkers, *([self.load] if self.load else [])]:
            helper.close()
        if hasattr(self, "server"):
            self.server.destroy()

    # --- what is done to it ----------------------------------------------------------------------------------------------

    def stats(self) -> Params:
        """Return the server's statistics."""
        return statistics(self.server.control)

    def order(self, text: str) -> list[dict[str, Any]]:
        """Give all checkers an order."""
        return [checker.order(text) for checker in self.checkers]

    def victim(self) -> tuple[str, int, int] | None:
        """Return (name, pid, incarnation) of a random stage process that has been ready for a while; None when there is none."""
        now = time.monotonic()
        grown = []
        for name, (pid, incarnation) in self.server.stages().items():
            if self.memory.is_ready(incarnation):
                since = self._ready_since.setdefault(incarnation, now)
                if now - since >= GROWN_UP_S:
                    grown.append((name, pid, incarnation))
        return self.random.choice(sorted(grown)) if grown else None

    def wait_victim(self) -> tuple[str, int, int] | None:
        """Wait until every stage process is up and one of them is a victim; None when the run's time is over first.

        The first one is waited for in any case: a run without a victim proves nothing.
        """
        end = time.monotonic() + START_S
        while self.goes_on or (not self.struck and time.monotonic() < end):
            found = self.victim() if self._all_up() else None
            if found is not None:
                return found
            time.sleep(0.02)
        return None

    def _all_up(self) -> bool:
        """True when as many stage processes are ready as there ever were at once."""
        up = sum(self.memory.is_ready(incarnation) for _, incarnation in self.server.stages().values())
        self._most_up = max(self._most_up, up)
        return up == self._most_up

    def strike(self, name: str, pid: int, incarnation: int, number: int = signal.SIGKILL) -> Struck | None:
        """Send a signal to a process when it has work in hand, wait for its death, note it; None when it was gone before."""
        end = time.monotonic() + AIM_S
        while not self.memory.in_hand(incarnation) and time.monotonic() < end:
            time.sleep(0)
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        try:
            at_ns = time.monotonic_ns()
            signal.pidfd_send_signal(pidfd, number)
            self.order(f"mark {at_ns}")
            if not select.select([pidfd], [], [], DEATH_S)[0]:
                raise ConfigError(f"{name} (pid {pid}) did not die within {DEATH_S:g} s of signal {number}")
        except ProcessLookupError:
            return None
        finally:
            os.close(pidfd)
        # Until it is reaped its number is still somebody's.
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), f"the reap of {name}", DEATH_S)
        death_ms = round((time.monotonic_ns() - at_ns) / 1e6, 1)
        struck = Struck(name, self.memory.in_hand(incarnation), self.memory.in_call(incarnation), death_ms)
        self.struck.append(struck)
        self.say(f"{name} died with {struck.in_hand} slots in hand{', in a call' if struck.in_call else ''}")
        return struck

    def strike_at_once(self, name: str, pid: int) -> None:
        """Kill a process whatever it does, and wait for its death; it holds nothing if it is just starting."""
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                select.select([pidfd], [], [], DEATH_S)
                self.facts["kills_at_start"] = self.facts.get("kills_at_start", 0) + 1
                self.say(f"{name} died at once")
            finally:
                os.close(pidfd)

    # --- what comes of it ------------------------------------------------------------------------------------------------

    def result(self, scenario: str) -> dict[str, Any]:
        """Return the JSON object of the run."""
        totals = self.totals
        recoveries = sorted(totals.recoveries_ms)
        busy = [one for one in self.struck if one.in_hand]
        return {
            "scenario": scenario,
            "seed": self.setting.seed,
            "seconds": self.setting.seconds,
            "cut": self.setting.cut,
            "sent": totals.sent,
            "ok": totals.ok,
            "errors": dict(sorted(totals.errors.items())),
            "expected_errors": totals.expected_errors,
            "lost": totals.lost,
            "doubled": totals.doubled,
            "wrong": totals.wrong,
            "ended_by_epoch": totals.ended_by_epoch,
            "in_hand_at_kill": sum(one.in_hand for one in self.struck),
            "kills": len(self.struck),
            "kills_in_hand": len(busy),
            "kills_by_stage": _by_stage(self.struck),
            "recovery_ms": recoveries[-1] if recoveries else None,
            "recovery_p50_ms": recoveries[len(recoveries) // 2] if recoveries else None,
            "balanced": totals.balanced,
            "left_behind": totals.left_behind,
            **self.facts,
        }


def _by_stage(struck: list[Struck]) -> Mapping[str, Mapping[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for one in struck:
        entry = found.setdefault(one.name, {"kills": 0, "in_hand": 0, "in_call": 0})
        entry["kills"] += 1
        entry["in_hand"] += one.in_hand > 0
        entry["in_call"] += one.in_call
    return dict(sorted(found.items()))
