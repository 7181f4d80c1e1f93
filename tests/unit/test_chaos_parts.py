"""The parts of a chaos run that decide: configs, requests and their right answers, damaged messages, the verdict."""

from __future__ import annotations

import argparse
import random
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.asserts import read_claim
from bench.chaos import command, lanes
from bench.chaos.cases import DigestCases, PoolCases, SpikedCases, pool_from_json, pool_to_json, tick_pool
from bench.chaos.functions import answer_of
from bench.chaos.mutate import mutate
from bench.chaos.scenarios import NOT_IN_ALL, SCENARIOS
from schemas.config import parse_config
from schemas.layout import read_layout
from schemas.status import ConfigError, RequestError
from schemas.templates import RequestTemplate

GOOD: dict[str, Any] = {
    "scenario": "kill", "sent": 5, "ok": 5, "errors": {}, "lost": 0, "doubled": 0, "wrong": 0, "ended_by_epoch": 0, "kills": 1,
    "kills_in_hand": 1, "recovery_ms": 10.0, "balanced": True, "left_behind": [], "passed": True,
}  # fmt: skip


@pytest.mark.parametrize("make", [lanes.built_in, lanes.demo, lanes.mixed])
@pytest.mark.parametrize("cut", ["fused", "stages"])
def test_every_config_is_one(make: Callable[[str], str], cut: str, tmp_path: Path) -> None:
    """In both cuts, each lane has a process more or one."""
    config = parse_config(make(cut), base=tmp_path, source="test")

    assert all((len(lane.processes) > 1) == (cut == "stages") for lane in config.lanes)


def test_toml_is_written_as_it_is_read() -> None:
    """Texts, truths, numbers, lists, tables in lists, tables in tables."""
    table = {"a": {"b": 1, "c": [{"name": "x", "shape": [-1, 2]}], "d": {"e": 'f"g', "h": True, "i": 1.5}}, "j": {"k": {"l": 2}}}

    assert tomllib.loads(lanes.to_toml(table)) == table


def test_the_same_seed_sends_the_same() -> None:
    """And another one something else."""
    first, again, other = (DigestCases(seed) for seed in (1, 1, 2))
    some = [first.next() for _ in range(5)]

    assert some == [again.next() for _ in range(5)]
    assert some != [other.next() for _ in range(5)]
    assert all(case.expected == {"answer": answer_of(case.tensors[0])} for case in some)


def test_every_so_manieth_request_is_the_poison_and_no_other() -> None:
    """With the error that it must get."""
    pool = tick_pool()[:4]
    spiked = SpikedCases(PoolCases(pool, 1), 3, "QUARANTINED")

    sent = [spiked.next() for _ in range(9)]

    assert [at for at, case in enumerate(sent, 1) if case.tensors == pool[0].tensors] == [3, 6, 9]
    assert {case.expected for case in sent[2::3] if isinstance(case.expected, str)} == {"QUARANTINED"}


def test_a_pool_survives_its_way_to_another_process() -> None:
    """As JSON."""
    pool = tick_pool()[:3]

    assert pool_from_json(pool_to_json(pool)) == pool


def test_most_damaged_messages_are_damaged_and_the_same_numbers_give_the_same_damage() -> None:
    """Reading them raises RequestError or nothing."""
    case = DigestCases(1).poison()
    frames = [RequestTemplate(case.model, case.forms).header(1, 1000, case.tensors)]
    damaged = [mutate(random.Random(seed), frames) for seed in range(500)]
    unreadable = 0
    for found in damaged:
        try:
            read_layout(found[0])
        except RequestError:
            unreadable += 1

    assert damaged == [mutate(random.Random(seed), frames) for seed in range(500)]
    assert sum(found != frames for found in damaged) > 450
    assert unreadable > 100


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ({"lost": 2}, "2 lost"),
        ({"doubled": 1}, "1 doubled"),
        ({"wrong": 1}, "1 wrong"),
        ({"balanced": False, "unrest": ["3 in flight"]}, "the server did not come to rest: 3 in flight"),
        ({"left_behind": ["process 7"]}, "left behind: process 7"),
        ({"silent": 1}, "1 starts ended without a word, or not at all"),
    ],
)
def test_a_run_passes_only_without_a_fault(fault: dict[str, Any], line: str) -> None:
    """Each of them alone is enough."""
    assert command._verdict(GOOD, [], is_one=True) == []
    assert command._verdict({**GOOD, **fault}, [], is_one=True) == [line]


def test_of_several_scenarios_a_claim_is_about_those_that_have_its_number() -> None:
    """A scenario that kills nobody has no recovery."""
    claims = [read_claim("recovery_ms<=5")]

    assert command._verdict({**GOOD, "recovery_ms": None}, claims, is_one=False) == []
    assert command._verdict({**GOOD, "recovery_ms": None}, claims, is_one=True) == ["recovery_ms<=5: it is none"]
    assert command._verdict(GOOD, claims, is_one=False) == ["recovery_ms<=5: it is 10"]


def test_a_claim_about_what_no_scenario_has_does_not_hold() -> None:
    """A typing error must not pass, and what nobody measured proves nothing."""
    results = [{**GOOD, "recovery_ms": None}, {**GOOD, "recovery_ms": None, "more": {"late_ms": 3}}]

    assert command._about_nothing(results, [read_claim("more.late_ms<=1"), read_claim("lost==0")]) == []
    assert command._verdict(results[1], [read_claim("more.late_ms<=1")], is_one=False) == ["more.late_ms<=1: it is 3"]
    assert command._about_nothing(results, [read_claim("recovery_ms<=5")]) == ["recovery_ms<=5: it is none"]
    with pytest.raises(ConfigError, match="no recovery in the report"):
        command._about_nothing(results, [read_claim("recovery<=5")])


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "ten"])
def test_a_length_that_is_none_is_told_with_what_is_allowed(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not with the name of a function of ours."""
    with pytest.raises(SystemExit):
        options("--seconds", text)
    assert f"argument --seconds: expected a number above 0 and below 1000000, got '{text}'" in capsys.readouterr().err


def test_the_table_has_a_line_for_each() -> None:
    """With the verdict at its end."""
    lines = command._table([GOOD, {**GOOD, "recovery_ms": None, "passed": False}]).splitlines()

    assert len(lines) == 3
    assert lines[1].endswith("passed")
    assert lines[2].endswith("FAILED")


def options(*arguments: str) -> argparse.Namespace:
    """Return the command's options."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--assert", "ok"], "--assert: expected"),
        (["--log", "/nowhere"], "--log: expected a directory"),
        (["my.toml", "--scenario", "kill", "--cut", "fused"], "--cut: a config file says its cut itself"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(arguments: list[str], reason: str) -> None:
    """One line."""
    with pytest.raises(ConfigError, match=reason):
        command.run(options(*arguments))


def test_every_scenario_is_in_the_help() -> None:
    """With what it does."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)

    for name, scenario in SCENARIOS.items():
        assert f"{name:<18} {scenario.about}" in parser.format_help()
    assert set(NOT_IN_ALL) < set(SCENARIOS)
