"""The command line: mistakes of a person are one line with the cure and code 2; with --json a script gets one object."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import run


def give_up(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Return (stderr, stdout) of a command that must end with code 2."""
    assert run.main(arguments) == 2
    captured = capsys.readouterr()
    return captured.err, captured.out


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_missing_config_is_one_line(command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It names the file and what to do."""
    errors, _ = give_up([command, str(tmp_path / "none.toml")], capsys)

    assert errors.count("\n") == 1
    assert "none.toml: no such file or directory: name a readable config file" in errors


def test_with_json_the_reason_is_an_object_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A script reads the last line of stdout in every case."""
    _, output = give_up(["check", str(tmp_path / "none.toml"), "--json"], capsys)

    assert "no such file" in json.loads(output.splitlines()[-1])["error"]


def test_a_pipe_as_config_is_refused_instead_of_waited_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Nobody may ever write to it."""
    os.mkfifo(tmp_path / "pipe")

    errors, _ = give_up(["check", str(tmp_path / "pipe")], capsys)

    assert "is no file" in errors


def test_brackets_without_end_are_no_toml(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The parser's stack is its own affair."""
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)

    errors, _ = give_up(["check", str(tmp_path / "deep.toml")], capsys)

    assert "nested too deeply" in errors


def test_the_demo_looks_at_where_its_picture_goes_before_it_starts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Not after all the answers."""
    errors, _ = give_up(["demo", "--out", str(tmp_path / "none" / "x.png")], capsys)

    assert "--out: expected a file in a directory that exists" in errors


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "1e9", "soon"])
def test_a_timeout_that_is_none_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By argparse, with the usage."""
    with pytest.raises(SystemExit) as ended:
        run.main(["infer", "--endpoint", "ipc:///x", "--model", "m", "--timeout", seconds, "f"])

    assert ended.value.code == 2
    assert "--timeout" in capsys.readouterr().err


@pytest.mark.parametrize("tool", ["bench", "chaos"])
def test_a_tool_of_the_source_tree_says_where_it_is(
    tool: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no part of the package: an installed command names the tree's."""
    monkeypatch.setitem(run.TOOLS, tool, ("bench.not_in_this_tree", "measures"))
    errors, output = give_up([tool, "demo", "--json"], capsys)

    assert errors == f"slotline: {tool}: comes with the source tree, not with the package; there: python run.py {tool}\n"
    assert json.loads(output)["error"] in errors
