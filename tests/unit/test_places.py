"""Files of a running server: claimed, swept, released; and what killed servers left."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

import pytest

from broker.places import LOCK_NAME, PREFIX, Places
from schemas.status import ConfigError


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which private directories are made; its name is short, as theirs must be."""
    made = tmp_path / "r"
    made.mkdir()
    monkeypatch.chdir(made)
    monkeypatch.setenv("XDG_RUNTIME_DIR", ".")
    return made


def leave_socket(path: Path) -> None:
    """Leave a socket file as a killed server does."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


def claimed(*paths: Path) -> Places:
    """Return the claimed places of a server with these ipc endpoints."""
    places = Places([f"ipc://{path}" for path in paths])
    places.claim()
    return places


def test_a_claim_makes_a_private_directory_and_a_lock_beside_each_socket(tmp_path: Path, runtime: Path) -> None:
    """Nobody else may look into the directories."""
    places = claimed(tmp_path / "new" / "s", tmp_path / "new" / "c")

    assert {path.name for path in (tmp_path / "new").iterdir()} == {"s.lock", "c.lock"}
    assert (tmp_path / "new" / "s.lock").read_text() == f"{os.getpid()}\n"
    assert os.stat(tmp_path / "new").st_mode & 0o777 == 0o700
    assert os.stat(places.directory).st_mode & 0o777 == 0o700
    places.release()


def test_a_release_leaves_nothing(tmp_path: Path, runtime: Path) -> None:
    """Sockets, locks, the private directory with its files."""
    places = claimed(tmp_path / "s")
    leave_socket(tmp_path / "s")
    (Path(places.directory) / "plan.json").touch()

    places.release()

    assert list(tmp_path.iterdir()) == [runtime]
    assert list(runtime.iterdir()) == []


def test_a_second_claim_of_an_endpoint_is_refused(tmp_path: Path) -> None:
    """It names who is there."""
    places = claimed(tmp_path / "s")

    with pytest.raises(ConfigError, match=f"in use by the server with pid {os.getpid()}: stop it or choose another"):
        claimed(tmp_path / "s")
    places.release()


def test_a_lock_file_without_its_server_locks_nobody_out(tmp_path: Path) -> None:
    """The socket file that it left is removed: bind would take it over silently."""
    leave_socket(tmp_path / "s")
    (tmp_path / "s.lock").write_text("12345\n")

    places = claimed(tmp_path / "s")

    assert not (tmp_path / "s").exists()
    places.release()


def test_a_dead_servers_directory_is_swept(runtime: Path, tmp_path: Path) -> None:
    """Its lock is free."""
    dead = runtime / f"{PREFIX}dead"
    dead.mkdir()
    (dead / LOCK_NAME).touch()
    (dead / "plan.json").touch()

    places = claimed(tmp_path / "s")

    assert not dead.exists()
    places.release()


def test_a_living_servers_directory_is_left_alone(runtime: Path, tmp_path: Path) -> None:
    """So are one that is just being made, and one that is not ours at all."""
    living, being_made, other = runtime / f"{PREFIX}living", runtime / f"{PREFIX}new", runtime / "other"
    for directory in (living, being_made, other):
        directory.mkdir()
    (other / LOCK_NAME).touch()
    with (living / LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        places = claimed(tmp_path / "s")

    assert living.exists()
    assert being_made.exists()
    assert other.exists()
    places.release()


def test_servers_do_not_sweep_each_other(runtime: Path, tmp_path: Path) -> None:
    """Two in one runtime directory."""
    first = claimed(tmp_path / "a")
    second = claimed(tmp_path / "b")

    assert Path(first.directory).exists()
    assert first.directory != second.directory
    second.release()
    first.release()


def test_a_sweep_keeps_the_plan_and_the_lock(tmp_path: Path) -> None:
    """Between two epochs only sockets go."""
    places = claimed(tmp_path / "s")
    directory = Path(places.directory)
    (directory / "plan.json").touch()
    os.mkfifo(directory / "not-a-file")

    places.sweep()

    assert {path.name for path in directory.iterdir()} == {"plan.json", LOCK_NAME}
    places.release()


def test_a_directory_that_cannot_be_made_is_a_mistake_with_a_cure(tmp_path: Path) -> None:
    """A path below a file."""
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match="choose a directory of yours"):
        claimed(tmp_path / "file" / "s")


@pytest.mark.parametrize("name", ["s", "s.lock"])
def test_a_file_of_somebody_elses_is_never_removed(tmp_path: Path, name: str) -> None:
    """Neither at the endpoint's path nor at its lock's: one line says that it is in the way."""
    (tmp_path / name).write_text("my notes")

    with pytest.raises(ConfigError, match="choose another endpoint"):
        claimed(tmp_path / "s")

    assert (tmp_path / name).read_text() == "my notes"


def test_a_long_directory_for_temporary_files_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets in it would have no room in 107 bytes."""
    long = tmp_path / ("d" * 80)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setattr("tempfile.tempdir", str(long))

    places = claimed(tmp_path / "s")

    assert not places.directory.startswith(str(long))
    places.release()
