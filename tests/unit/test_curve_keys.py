"""The command ``keys``, and the keys that a caller gives to a client."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from curve_files import make_pair, write_new

import run
from clients import BadKeys, Client
from clients.keys import Keys, read_keys
from schemas.key_files import read_key_pair, read_public_key

Keyed = Callable[..., int]


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keyed:
    """Run ``keys`` in a directory of its own; return the exit code."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run.main(["keys", *arguments])


def test_it_makes_the_servers_pair(keys: Keyed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Says which file goes where, and the public key; never the secret one."""
    assert keys("server", "--out", "made") == 0

    pair = read_key_pair(tmp_path / "made" / "server.secret")
    out = capsys.readouterr().out
    assert f"public key {pair.public}" in out
    assert pair.secret not in out
    assert read_public_key(tmp_path / "made" / "server.pub") == pair.public


def test_it_makes_a_clients_pair(keys: Keyed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json as one object."""
    assert keys("client", "cam1", "--out", "made", "--json") == 0

    said = json.loads(capsys.readouterr().out)
    assert said["name"] == "cam1"
    assert said["public_key"] == read_key_pair(tmp_path / said["secret_file"]).public
    assert said["public_key"] == read_public_key(tmp_path / said["public_file"])


def test_it_replaces_no_key(keys: Keyed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr, and the first pair is still there."""
    keys("client", "cam1", "--out", "made")
    before = read_key_pair(tmp_path / "made" / "cam1.secret")

    assert keys("client", "cam1", "--out", "made") == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("an existing key is never replaced")
    assert read_key_pair(tmp_path / "made" / "cam1.secret") == before


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "a b", "x" * 65])
def test_a_name_that_cannot_be_a_files_is_refused(keys: Keyed, tmp_path: Path, name: str) -> None:
    """Nothing is written, here or elsewhere."""
    assert keys("client", name, "--out", "made") == 2
    assert list(tmp_path.iterdir()) == []


def test_it_lists_who_may_come_in(keys: Keyed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By name, with the server's own key; a file that is wrong is told and makes it 1."""
    server, cam = write_new(tmp_path, "server"), write_new(tmp_path / "clients", "cam1")
    config = '[curve]\nsecret_key = "server.secret"\nclients = "clients"\n[lane.echo]\n'
    (tmp_path / "c.toml").write_text(config)
    assert keys("list", "c.toml", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"server_key": server.public, "clients": {"cam1": cam.public}, "wrong": {}}

    (tmp_path / "clients" / "bad.pub").touch()
    assert keys("list", "c.toml") == 1
    out = capsys.readouterr().out
    assert f"cam1                     {cam.public}" in out
    assert "bad.pub                  not taken: " in out


def test_a_config_without_keys_has_no_list(keys: Keyed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says so."""
    (tmp_path / "c.toml").write_text("[lane.echo]\n")

    assert keys("list", "c.toml") == 2
    assert "has no [curve]" in capsys.readouterr().err


# --- a client's keys ---------------------------------------------------------------------------------------------------------


def test_a_client_takes_keys_as_text_or_as_files(tmp_path: Path) -> None:
    """All of them are the same; and the secret does not show."""
    server, pair = write_new(tmp_path, "server"), write_new(tmp_path, "cam1")
    expected = Keys(server.public, pair.public, pair.secret)

    assert read_keys(server.public, (pair.public, pair.secret), "") == expected
    assert read_keys(tmp_path / "server.pub", None, tmp_path / "cam1.secret") == expected
    assert read_keys("", None, "") is None
    assert pair.secret not in repr(expected)


def test_a_key_that_is_missing_or_wrong_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    """Whichever it is."""
    server, pair, other = make_pair().public, make_pair(), make_pair()
    write_new(tmp_path, "cam1")
    both = (pair.public, pair.secret)
    wrong: list[tuple[str | Path, tuple[str, str] | None, str | Path, str]] = [
        (server, None, "", "expected server_key, and either key="),
        ("", both, "", "expected server_key"),
        (server, both, tmp_path / "cam1.secret", "either key="),
        ("server.pub", both, "", "or the Path of a file, got server.pub"),
        (server, (pair.public, "short"), "", "each 40 characters"),
        (server, (pair.public, other.secret), "", "does not belong to the public key"),
        (server, None, tmp_path / "none", "no such file"),
        (server, None, tmp_path / "cam1.pub", "has no line secret-key"),
    ]
    for server_key, key, key_file, said in wrong:
        with pytest.raises(BadKeys, match=said):
            read_keys(server_key, key, key_file)
    with pytest.raises(ValueError, match="server_key"):
        Client("tcp://127.0.0.1:1", server_key=server)
