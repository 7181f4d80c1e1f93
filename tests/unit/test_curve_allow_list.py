"""The allow-list: whose keys may come in, and how a change of the files is noticed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from curve_files import write_new

from broker.curve import AllowList, read_server_secret
from schemas.status import ConfigError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with the keys of cam1 and cam2, secret ones too."""
    write_new(tmp_path, "cam1")
    write_new(tmp_path, "cam2")
    return tmp_path


def names(allowed: AllowList) -> list[str]:
    """Return who is on the list."""
    return sorted(allowed.names.values())


def settle(allowed: AllowList) -> bool:
    """Look until the files have stood still for one look; return whether the list changed."""
    return any([allowed.refresh(), allowed.refresh()])


def test_each_public_file_is_a_client_of_its_name(directory: Path) -> None:
    """Secret ones, hidden ones and others in the directory are none."""
    shutil.copy(directory / "cam1.pub", directory / ".hidden.pub")
    (directory / "notes.txt").touch()
    allowed = AllowList(directory)

    assert names(allowed) == ["cam1", "cam2"]
    assert allowed.faults == {}
    assert all(len(key) == 40 for key in allowed.names)


def test_what_does_not_change_is_not_news(directory: Path) -> None:
    """However often one looks."""
    allowed = AllowList(directory)

    assert not any(allowed.refresh() for _ in range(5))
    assert names(allowed) == ["cam1", "cam2"]


def test_a_key_that_is_taken_off_is_off(directory: Path) -> None:
    """And one that is put there is on, the last one and the first one too."""
    allowed = AllowList(directory)
    (directory / "cam1.pub").unlink()
    assert settle(allowed)
    assert names(allowed) == ["cam2"]

    (directory / "cam2.pub").unlink()
    assert settle(allowed)
    assert names(allowed) == []

    write_new(directory, "cam3")
    assert settle(allowed)
    assert names(allowed) == ["cam3"]


def test_a_list_emptied_before_the_first_look_is_empty(directory: Path) -> None:
    """The start is no exception."""
    allowed = AllowList(directory)
    for path in directory.glob("*.pub"):
        path.unlink()

    assert settle(allowed)
    assert names(allowed) == []


def test_a_name_may_get_another_key(directory: Path) -> None:
    """In place: the old key is off the list at once with it."""
    allowed = AllowList(directory)
    old = set(allowed.names)
    new = write_new(directory, "new")
    os.replace(directory / "new.pub", directory / "cam1.pub")

    assert settle(allowed)
    assert allowed.names[new.public] == "cam1"
    assert len(old - set(allowed.names)) == 1


def test_a_file_that_is_being_written_cuts_nobody_off(directory: Path) -> None:
    """Only what stood still for one look is read."""
    allowed = AllowList(directory)
    text = (directory / "cam1.pub").read_text()
    for size in (0, 20, len(text) // 2):
        (directory / "cam1.pub").write_text(text[:size])
        assert not allowed.refresh()
    (directory / "cam1.pub").write_text(text)

    assert not settle(allowed)
    assert names(allowed) == ["cam1", "cam2"]


def test_a_wrong_file_keeps_nobody_else_out(directory: Path) -> None:
    """It is told, and has no key; neither has a link that leads nowhere, nor a file with a bad name."""
    (directory / "broken.pub").write_text("nothing")
    (directory / "dangling.pub").symlink_to(directory / "nowhere")
    shutil.copy(directory / "cam1.pub", directory / "a b.pub")
    allowed = AllowList(directory)

    assert names(allowed) == ["cam1", "cam2"]
    assert sorted(allowed.faults) == ["a b.pub", "broken.pub", "dangling.pub"]
    (directory / "cam2.pub").unlink()
    assert settle(allowed)
    assert names(allowed) == ["cam1"]


def test_a_key_has_one_name(directory: Path) -> None:
    """The first in the order of names; the second file is told."""
    shutil.copy(directory / "cam1.pub", directory / "zz.pub")
    allowed = AllowList(directory)

    assert names(allowed) == ["cam1", "cam2"]
    assert "same key as cam1" in allowed.faults["zz.pub"]


def test_a_directory_that_vanishes_changes_nothing(directory: Path) -> None:
    """That is told once; when it is back, it counts again."""
    kept = directory.with_name("kept")
    allowed = AllowList(directory)
    directory.rename(kept)
    assert not any(allowed.refresh() for _ in range(3))
    assert names(allowed) == ["cam1", "cam2"]

    (kept / "cam1.pub").unlink()
    kept.rename(directory)
    assert settle(allowed)
    assert names(allowed) == ["cam2"]


def test_without_a_directory_there_is_no_start(tmp_path: Path) -> None:
    """Nobody could come in, and nobody would know why."""
    with pytest.raises(ConfigError, match="no such file or directory: name a readable directory"):
        AllowList(tmp_path / "none")


def test_the_servers_two_keys_belong_together(tmp_path: Path) -> None:
    """Else no client that was given the public one could come in."""
    pair = write_new(tmp_path, "server")
    other = write_new(tmp_path, "other")
    assert read_server_secret(tmp_path / "server.secret") == pair.secret

    path = tmp_path / "server.secret"
    path.write_text(path.read_text().replace(pair.public, other.public))
    with pytest.raises(ConfigError, match="does not belong to its public key"):
        read_server_secret(path)
