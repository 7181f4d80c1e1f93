"""Key files for tests, made as ``slotline keys`` makes them."""

from __future__ import annotations

from pathlib import Path

import zmq

from schemas.key_files import KeyPair, write_key_pair


def make_pair() -> KeyPair:
    """Return a new pair of keys."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def write_new(directory: Path, name: str) -> KeyPair:
    """Write the files of a new pair and return it."""
    pair = make_pair()
    write_key_pair(directory, name, pair)
    return pair
