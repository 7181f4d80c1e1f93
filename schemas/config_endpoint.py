"""Endpoints of the config file: made absolute and checked before a socket sees them. No socket is opened here."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

from schemas.config_rules import Spot

# sun_path is 108 bytes with its closing zero; libzmq answers a longer path with an error that names nothing.
MAX_IPC_PATH_BYTES = 107
CONTROL_SUFFIX = ".control"


def resolve_endpoint(text: str, *, base: Path, may_be_open: bool, spot: Spot) -> str:
    """Return the endpoint to bind: an ipc path made absolute against *base*, a TCP address as written.

    Raises:
        ConfigError: the scheme is neither, the path is too long or abstract, or the address is open to other machines
            while *may_be_open* is false.
    """
    if text.startswith("ipc://"):
        return _resolve_ipc(text, base=base, spot=spot)
    if text.startswith("tcp://"):
        return _check_tcp(text, may_be_open=may_be_open, spot=spot)
    raise spot.wrong(text, "ipc://PATH or tcp://ADDRESS:PORT")


def default_control(endpoint: str, *, spot: Spot) -> str | None:
    """Return the control endpoint that goes with *endpoint* (already absolute); None for TCP: the server chooses."""
    if not endpoint.startswith("ipc://"):
        return None
    control = endpoint + CONTROL_SUFFIX
    _check_length(
        control, f"a path of at most {MAX_IPC_PATH_BYTES - len(CONTROL_SUFFIX)} bytes (its control socket adds 8)", spot
    )
    return control


def _resolve_ipc(text: str, *, base: Path, spot: Spot) -> str:
    name = text.removeprefix("ipc://")
    if name.startswith("@"):
        raise spot.wrong(text, "a path: an abstract name (@) is open to every user of the machine")
    if "\0" in name or name == "*":
        raise spot.wrong(text, "a path that clients can name")
    endpoint = "ipc://" + os.path.abspath(base / Path(name).expanduser())
    _check_length(endpoint, f"a path of at most {MAX_IPC_PATH_BYTES} bytes", spot)
    return endpoint


def _check_length(endpoint: str, expected: str, spot: Spot) -> None:
    size = len(os.fsencode(endpoint.removeprefix("ipc://")))
    if size > MAX_IPC_PATH_BYTES:
        raise spot.error(
            f"the absolute path has {size} bytes; expected {expected}: write a shorter one, such as ipc:///run/slotline.ipc"
        )


def _check_tcp(text: str, *, may_be_open: bool, spot: Spot) -> str:
    host, colon, port = text.removeprefix("tcp://").rpartition(":")
    if not colon or not host or not (port == "*" or (port.isdecimal() and int(port) <= 65535)):
        raise spot.wrong(text, "tcp://ADDRESS:PORT with a port from 0 to 65535")
    if host == "localhost":
        raise spot.wrong(text, "an address to bind: libzmq resolves no names there, write 127.0.0.1")
    if not may_be_open and not _is_loopback(host):
        raise spot.wrong(text, "127.0.0.1, or keys in [curve], or server.insecure = true: other machines reach this address")
    return text


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
