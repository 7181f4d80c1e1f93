"""Key files: what is written is read again, by other tools too; a secret stays one; a damaged file is told with its cure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zmq.auth
import zmq.utils.z85
from curve_files import make_pair, write_new
from hypothesis import given
from hypothesis import strategies as st

from schemas.key_files import is_key, read_key_pair, read_public_key, write_key_pair
from schemas.status import ConfigError


def test_a_pair_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The public key from either file, the secret one from its own."""
    pair = write_new(tmp_path, "cam1")

    assert read_key_pair(tmp_path / "cam1.secret") == pair
    assert read_public_key(tmp_path / "cam1.pub") == read_public_key(tmp_path / "cam1.secret") == pair.public


def test_other_tools_read_the_files(tmp_path: Path) -> None:
    """They are ZeroMQ certificates."""
    pair = write_new(tmp_path, "cam1")

    assert zmq.auth.load_certificate(tmp_path / "cam1.secret") == (pair.public.encode(), pair.secret.encode())
    assert zmq.auth.load_certificate(tmp_path / "cam1.pub") == (pair.public.encode(), None)


def test_certificates_of_other_tools_are_read(tmp_path: Path) -> None:
    """Whatever their names."""
    public, secret = zmq.auth.create_certificates(tmp_path, "cam1")
    os.chmod(secret, 0o600)

    assert read_public_key(Path(public)) == read_key_pair(Path(secret)).public


def test_a_secret_is_its_owners_alone(tmp_path: Path) -> None:
    """Whatever the umask; and it does not show in a log by accident."""
    old = os.umask(0)
    try:
        pair = write_new(tmp_path / "new", "cam1")
    finally:
        os.umask(old)

    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "new" / "cam1.secret").stat().st_mode & 0o777 == 0o600
    assert pair.secret not in (tmp_path / "new" / "cam1.pub").read_text()
    assert pair.secret not in repr(pair)


@pytest.mark.parametrize("there", ["cam1.pub", "cam1.secret"])
def test_nothing_is_replaced(tmp_path: Path, there: str) -> None:
    """Neither of the two; and nothing is left half done."""
    (tmp_path / there).write_text("mine")

    with pytest.raises(ConfigError, match=f"{there}: file exists: choose another"):
        write_key_pair(tmp_path, "cam1", make_pair())

    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, "mine")]


def test_a_secret_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    """With the command that cures it; a group may read it, as container hosts mount secrets."""
    write_new(tmp_path, "cam1")
    path = tmp_path / "cam1.secret"
    path.chmod(0o640)
    read_key_pair(path)
    path.chmod(0o644)

    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        read_key_pair(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no line public-key"),
        ('public-key = "short"', r'its public-key "short" is not 40 characters of Z85'),
        ('public-key = "' + "#" * 40 + '"', "is not 40 characters of Z85"),
        ('public-key = "' + "0" * 40 + '"\n' + "#" * 5000, "has no line public-key"),
    ],
)
def test_a_damaged_file_is_told(tmp_path: Path, text: str, why: str) -> None:
    """Empty, cut, worth more than 32 bytes, or far too large."""
    (tmp_path / "cam1.pub").write_text(text)

    with pytest.raises(ConfigError, match=why):
        read_public_key(tmp_path / "cam1.pub")


def test_a_damaged_secret_is_not_shown(tmp_path: Path) -> None:
    """Most of it may still be right."""
    (tmp_path / "a.secret").write_text(f'public-key = "{"0" * 40}"\nsecret-key = "verysecret"')

    with pytest.raises(ConfigError) as caught:
        read_key_pair(tmp_path / "a.secret")

    assert "verysecret" not in str(caught.value)


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    """Nothing, a directory, a pipe that nobody writes to."""
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path / "none", tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigError, match=str(path)):
            read_public_key(path)


@given(st.binary(min_size=32, max_size=32))
def test_every_key_is_one(key: bytes) -> None:
    """Any 32 bytes."""
    assert is_key(zmq.utils.z85.encode(key).decode())


def test_what_is_no_key_is_none() -> None:
    """Too short, too long, characters outside Z85."""
    assert not any(is_key(text) for text in ("", "0" * 39, "0" * 41, "0" * 39 + '"', "0" * 39 + "é", "0" * 39 + "\n"))
