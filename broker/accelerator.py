"""The broker's work per message: in C where the accelerator was built (``_hot.c``), else in Python, which is its oracle.

Both do the same; docs/performance.md says what it is worth. ``SLOTLINE_ACCELERATOR=off`` leaves it out.
"""

from __future__ import annotations

import errno
import importlib
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import zmq

from schemas.layout_cache import Decider, plain_decider

from .life import Client

# What is known of a message that was taken: its sender sends an empty frame first; more frames are to be read; nobody knows its
# sender yet, the first element is the routing id and nothing behind it was read.
HAS_DELIMITER, HAS_MORE, IS_UNKNOWN = 1, 2, 4
Message: TypeAlias = tuple["Client | bytes", bytes, int]
Receive: TypeAlias = Callable[[Mapping[bytes, Client], int], list[Message]]
# (identity, header, has_delimiter) each, and where to begin -> where it stopped and why: an errno, 0 for the end.
Send: TypeAlias = Callable[[Sequence[tuple[bytes, bytes, bool]], int], tuple[int, int]]
_OFF = "SLOTLINE_ACCELERATOR"
_MORE = zmq.SNDMORE | zmq.NOBLOCK


def load() -> tuple[ModuleType | None, str]:
    """Return the accelerator and "", or None and why it is not used."""
    return (None, f"{_OFF}=off") if os.environ.get(_OFF) == "off" else _linked()


@cache
def _linked() -> tuple[ModuleType | None, str]:
    """Find the accelerator and the library that it calls: once, though each door and lane asks for it."""
    try:
        hot = importlib.import_module("broker._hot")
    except ImportError as error:
        return None, f"not built: {error.name or error}"
    path = _loaded_libzmq()
    if not path:
        return None, "pyzmq has no libzmq of its own file"
    try:
        hot.link(path)
    except OSError as error:
        return None, str(error)
    return hot, ""


def _loaded_libzmq() -> str:
    """Return the file of the libzmq that pyzmq has loaded into this process, "" when it has none of its own."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        path = line.partition("/")[2]
        if "/libzmq" in path:
            return f"/{path}"
    return ""


def receiver(hot: ModuleType | None, socket: zmq.Socket[bytes]) -> Receive:
    """Return what takes messages off a ROUTER: ``(clients, limit) -> [(client, header, bits)]``.

    It stops when there is none, at *limit*, and behind a message that the caller must read on: HAS_MORE.
    """
    return partial(_receive, socket) if hot is None else partial(hot.receive, socket.underlying)


def sender(hot: ModuleType | None, socket: zmq.Socket[bytes]) -> Send:
    """Return what gives one-frame messages to a ROUTER without waiting."""
    return partial(_send, socket) if hot is None else partial(hot.send, socket.underlying)


def decider(hot: ModuleType | None) -> Decider:
    """Return what makes the function that takes the deciding bytes of a header."""
    return plain_decider if hot is None else partial(_hot_decider, hot)


def _hot_decider(hot: ModuleType, slices: Sequence[slice]) -> Callable[[bytes], bytes]:
    return partial(hot.join, b"".join(struct.pack("<2I", part.start, part.stop) for part in slices))


def _receive(socket: zmq.Socket[bytes], clients: Mapping[bytes, Client], limit: int) -> list[Message]:
    recv, get = socket.recv, socket.get
    messages: list[Message] = []
    for _ in range(limit):
        try:
            identity = recv(zmq.NOBLOCK)
        except zmq.Again:
            break
        client = clients.get(identity)
        if client is None:
            messages.append((identity, b"", IS_UNKNOWN | HAS_MORE))
            break
        header, bits = recv(), 0
        if not header and get(zmq.RCVMORE):
            header, bits = recv(), HAS_DELIMITER
        if get(zmq.RCVMORE):
            messages.append((client, header, bits | HAS_MORE))
            break
        messages.append((client, header, bits))
    return messages


def _send(socket: zmq.Socket[bytes], messages: Sequence[tuple[bytes, bytes, bool]], start: int) -> tuple[int, int]:
    send = socket.send
    for at in range(start, len(messages)):
        identity, header, has_delimiter = messages[at]
        try:
            send(identity, _MORE)
            if has_delimiter:
                send(b"", _MORE)
            send(header, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            return at, error.errno or errno.EIO
    return len(messages), 0
