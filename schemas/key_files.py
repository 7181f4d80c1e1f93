"""CURVE keys as files: what is in them, reading, writing. Server, clients and the command line share it; it needs no zmq.

The format is that of ZeroMQ certificates, so other tools read these files and these read theirs. ``NAME.pub`` has the public
key and may go anywhere; ``NAME.secret`` has both and is its owner's alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schemas.status import ConfigError, printable

PUBLIC_SUFFIX = ".pub"
SECRET_SUFFIX = ".secret"
KEY_CHARS = 40
# Z85 (ZeroMQ RFC 32): five characters for each four bytes, worth at most 2^32 - 1.
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_LINE = re.compile(r'\s*(public-key|secret-key)\s*=\s*"([^"]*)"\s*')
# A key file has some 200 bytes; whatever is larger is something else.
_MAX_FILE_BYTES = 4096
_OTHERS = 0o007
_HEAD = '# A CURVE key of Slotline, in the format of a ZeroMQ certificate. {about}\nmetadata\n    name = "{name}"\ncurve\n'


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Both halves of a key, in Z85."""

    public: str
    secret: str = field(repr=False)


def is_key(text: str) -> bool:
    """Return whether *text* is a key in Z85."""
    if len(text) != KEY_CHARS or any(char not in _ALPHABET for char in text):
        return False
    return all(_worth(text[at : at + 5]) < 1 << 32 for at in range(0, KEY_CHARS, 5))


def _worth(five: str) -> int:
    worth = 0
    for char in five:
        worth = worth * 85 + _ALPHABET.index(char)
    return worth


def read_public_key(path: Path) -> str:
    """Return the public key in a file.

    Raises:
        ConfigError: it cannot be read or has none; one line with the cure.
    """
    return _key(_read(path)[0], "public-key", path, f"name a {PUBLIC_SUFFIX} file that `slotline keys` made")


def read_key_pair(path: Path) -> KeyPair:
    """Return the pair in a secret key file.

    Raises:
        ConfigError: it cannot be read, lacks a key, or is open to everybody; one line with the cure.
    """
    keys, mode = _read(path)
    cure = f"name the {SECRET_SUFFIX} file that `slotline keys` made"
    pair = KeyPair(_key(keys, "public-key", path, cure), _key(keys, "secret-key", path, cure))
    if mode & _OTHERS:
        raise ConfigError(f"{path}: every user of this machine may read this secret key: chmod 600 {path}")
    return pair


def write_key_pair(directory: Path, name: str, pair: KeyPair) -> tuple[Path, Path]:
    """Write a new pair; return the paths of the public and the secret file, the latter with mode 0600.

    Raises:
        ConfigError: one of them is there already, or the directory cannot be used; nothing was written.
    """
    public, secret = directory / (name + PUBLIC_SUFFIX), directory / (name + SECRET_SUFFIX)
    both = f'    public-key = "{pair.public}"\n    secret-key = "{pair.secret}"\n'
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(secret, _HEAD.format(about="SECRET: for its owner's eyes alone.", name=name) + both, 0o600)
        try:
            _write(public, _HEAD.format(about="Not secret.", name=name) + both.splitlines(keepends=True)[0], 0o644)
        except BaseException:
            secret.unlink()
            raise
    except OSError as error:
        reason = (error.strerror or "cannot be written").lower()
        cure = "choose another --out or name; an existing key is never replaced"
        raise ConfigError(f"{error.filename or directory}: {reason}: {cure}") from None
    return public, secret


def _read(path: Path) -> tuple[Mapping[str, str], int]:
    """Return the keys in a file by their words, and the file's mode."""
    try:
        # Not blocking: a pipe in its place must not stop the broker.
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MAX_FILE_BYTES + 1).decode("utf-8", "replace")
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise ConfigError(f"{path}: {reason}: name a readable key file") from None
    lines = text.splitlines() if len(text) <= _MAX_FILE_BYTES else []
    return {found[1]: found[2] for line in lines if (found := _LINE.fullmatch(line)) is not None}, mode


def _key(keys: Mapping[str, str], which: str, path: Path, cure: str) -> str:
    key = keys.get(which)
    if key is None:
        raise ConfigError(f"{path}: has no line {which}: {cure}")
    if not is_key(key):
        # A secret is never shown, not even a damaged one.
        shown = f' "{printable(key)}"' if which == "public-key" else ""
        raise ConfigError(f"{path}: its {which}{shown} is not {KEY_CHARS} characters of Z85: {cure}")
    return key


def _write(path: Path, text: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
