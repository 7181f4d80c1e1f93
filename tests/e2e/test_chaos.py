"""The scenarios of ``run.py chaos`` in their short form: nothing lost, doubled or wrong, books that balance, nothing left behind.

T1 to T15 are the promises' tests; the full lengths and their figures are in docs/operations.md. Times are reported, never a gate.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from server import RUN

pytestmark = pytest.mark.chaos

# A watchdog: ten times what the slowest takes.
PATIENCE_S = 600.0
# A death that was not a request's fault, six times over or in the lone second run, may end it all the same.
FOREIGN = {"STAGE_DIED", "QUARANTINED"}


def chaos(*arguments: str) -> dict[str, Any]:
    """Run the command and return its report; it must say that it passed."""
    done = subprocess.run([*RUN, "chaos", *arguments, "--json"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    print(done.stderr[-4000:])
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, report.get("passed")) == (0, True), report
    assert report["ok"] > 0
    return report


def short(scenario: str, *more: str, seconds: float = 4) -> dict[str, Any]:
    """Run one scenario on the built-in lane."""
    return chaos("--scenario", scenario, "--seconds", str(seconds), *more)


@pytest.mark.parametrize("cut", ["fused", "stages"])
def test_t1_t2_stages_are_killed_with_work_in_hand(cut: str) -> None:
    """They are replaced, and every request has its one right answer."""
    report = short("kill", "--cut", cut, "--assert", "kills>=1", seconds=8)

    assert set(report["errors"]) <= FOREIGN
    assert 2 * report["kills_in_hand"] >= report["kills"]


def test_t1_the_demos_stages_are_killed() -> None:
    """Every answer is that of a direct run of the models, bit for bit."""
    report = chaos("demo", "--scenario", "kill", "--seconds", "6")

    assert set(report["errors"]) <= FOREIGN


def test_t3_stopped_stages_are_killed_and_a_sigcont_finds_nobody() -> None:
    """Their work runs again."""
    report = short("stop", "--assert", "found_by_sigcont==0", "--assert", "kills>=1")

    assert set(report["errors"]) <= FOREIGN


def test_t4_the_broker_is_killed() -> None:
    """A new epoch each time; the library's calls end, none waits beyond its budget by more than a watchdog's time."""
    report = short("broker_kill", "--assert", "broker_kills>=1")

    assert report["epochs"] == report["broker_kills"] + 1
    assert not report["errors"]


def test_t5_a_request_that_kills_costs_two_deaths() -> None:
    """QUARANTINED each, and nobody else is."""
    report = short("poison", "--cut", "fused", seconds=8)

    assert set(report["errors"]) <= FOREIGN
    assert report["expected_errors"] > 0
    assert report["deaths"] == 2 * report["expected_errors"]


def test_t6_a_stage_that_never_returns() -> None:
    """Killed at its hang limit; what it ran is run again."""
    report = short("hang", "--assert", "deaths>=1", seconds=8)

    assert set(report["errors"]) <= FOREIGN


def test_t7_five_times_too_much() -> None:
    """The rest is BUSY; afterwards nothing is in flight. That goodput and refusals are quick is the full length's affair."""
    report = short("overload", seconds=6)

    assert set(report["errors"]) <= {"BUSY", "DEADLINE_EXCEEDED"}
    assert report["errors"]["BUSY"] > 0


def test_t8_clients_that_never_read() -> None:
    """The others are served."""
    assert not short("never_read")["errors"]


def test_t9_told_to_end_under_load() -> None:
    """What was received is answered, exit code 0."""
    report = short("sigterm", "--assert", "sigterms>=1")

    assert set(report["errors"]) <= {"DRAINING"}


@pytest.mark.parametrize("scenario", ["duplicate_hop", "late_hop"])
def test_t11_hops_that_come_twice_or_late(scenario: str) -> None:
    """Exactly one answer, and it is a result."""
    report = short(scenario, "--assert", "late_hops>0")

    assert not report["errors"]


def test_t11_hops_that_are_lost() -> None:
    """The deadline answers."""
    assert set(short("drop_hop")["errors"]) <= FOREIGN | {"DEADLINE_EXCEEDED", "BUSY"}


def test_t12_clients_that_vanish() -> None:
    """Nothing of them stays."""
    report = short("vanish", "--assert", "vanished>=1")

    assert not report["errors"]


def test_t14_tcp_that_misbehaves() -> None:
    """Single bytes, delay, resets and half-open connections."""
    report = short("toxics", "--assert", "resets>=2", seconds=6)

    assert not report["errors"]


@pytest.mark.parametrize("scenario", ["no_memory", "no_descriptors"])
def test_t15_a_machine_that_has_no_more_to_give(scenario: str) -> None:
    """A start that does not fit says so; what runs answers or ends with its epoch."""
    report = short(scenario, "--assert", "silent==0")

    assert set(report["errors"]) <= FOREIGN | {"MODEL_FAILED", "OUT_OF_MEMORY"}


@pytest.mark.parametrize("scenario", ["corrupt_message", "slow", "kill_starting"])
def test_other_ways_to_go_wrong(scenario: str) -> None:
    """The good clients notice nothing."""
    assert set(short(scenario)["errors"]) <= FOREIGN


def test_one_request_that_raises_is_the_only_one_that_fails() -> None:
    """Also in the middle of a batch of the demo's model."""
    report = chaos("demo", "--scenario", "raise", "--seconds", "5", "--cut", "fused")

    assert set(report["errors"]) == {"MODEL_FAILED"}
    assert report["expected_errors"] == report["errors"]["MODEL_FAILED"]


def test_a_config_of_ones_own_is_probed_first(tmp_path: Path) -> None:
    """Later answers must equal the first ones."""
    config = tmp_path / "echo.toml"
    config.write_text("[lane.echo]\nslots = 8\nmax_encoded_bytes = 4096\n")

    assert chaos(str(config), "--scenario", "kill", "--seconds", "5")["cut"] == "file"


def test_a_claim_that_does_not_hold_fails_the_run() -> None:
    """Exit code 1, and the report says that it did not pass."""
    command = [*RUN, "chaos", "--scenario", "slow", "--seconds", "1", "--json", "--assert", "ok<1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert (done.returncode, json.loads(done.stdout)["passed"]) == (1, False)
    assert "ok<1: it is " in done.stderr
