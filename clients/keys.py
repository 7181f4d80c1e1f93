"""The keys of a client: read once, checked, given to each socket. What a refused client sees is in connection.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import zmq

from schemas.key_files import KEY_CHARS, KeyPair, is_key, read_key_pair, read_public_key
from schemas.status import ConfigError, printable

from .errors import BadKeys


@dataclass(frozen=True, slots=True)
class Keys:
    """The server's public key, and the client's own pair; in Z85."""

    server: str
    public: str
    secret: str = field(repr=False)

    def apply(self, socket: zmq.Socket[bytes]) -> None:
        """Make *socket*, not connected yet, talk to this server only, as this client."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.server.encode())
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.public.encode())
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.secret.encode())


def read_keys(server_key: str | Path, key: tuple[str, str] | None, key_file: str | Path) -> Keys | None:
    """Return the keys that a caller gave; None when there are none.

    Args:
        server_key: the server's public key, or the Path of a file with it.
        key: the client's (public, secret).
        key_file: or a file with both.

    Raises:
        BadKeys: one is missing, given twice or wrong; the text has the cure.
        RuntimeError: this build of pyzmq has no CURVE.
    """
    _check_kinds(server_key, key, key_file)
    if not server_key and key is None and not key_file:
        return None
    if not server_key or (key is None) == (not key_file):
        raise BadKeys("keys: expected server_key, and either key=(public, secret) or key_file: CURVE needs both sides' keys")
    if not zmq.has("curve"):
        raise RuntimeError("this build of pyzmq has no CURVE: install a pyzmq whose libzmq has it, such as its wheels from PyPI")
    try:
        public = read_public_key(server_key) if isinstance(server_key, Path) else server_key
        pair = read_key_pair(Path(key_file)) if key is None else KeyPair(*key)
    except ConfigError as error:
        raise BadKeys(str(error)) from None
    if not is_key(public):
        raise BadKeys(f"server_key: expected {KEY_CHARS} characters of Z85, or the Path of a file, got {printable(public)}")
    if not is_key(pair.public) or not is_key(pair.secret):
        raise BadKeys(f"key: expected (public, secret), each {KEY_CHARS} characters of Z85")
    if zmq.curve_public(pair.secret.encode()) != pair.public.encode():
        raise BadKeys("key: the secret key does not belong to the public key: take both from one file")
    return Keys(public, pair.public, pair.secret)


def _check_kinds(server_key: object, key: object, key_file: object) -> None:
    """Raise TypeError for what is no key; it says nothing of what it is: that may be half of a secret."""
    for argument, value in (("server_key", server_key), ("key_file", key_file)):
        if not isinstance(value, str | Path):
            raise TypeError(f"{argument}: expected a text or a Path, got {type(value).__name__}")
    is_pair = isinstance(key, tuple | list) and len(key) == 2 and all(isinstance(half, str) for half in key)
    if key is not None and not is_pair:
        raise TypeError(f"key: expected (public, secret), two texts, got {type(key).__name__}")
