"""The command ``keys``: make CURVE key files, and list who may come in. Its arguments, what it does, what it prints."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from schemas.config import load_config
from schemas.config_rules import NAME
from schemas.key_files import KeyPair, read_key_pair, write_key_pair
from schemas.status import ConfigError, printable

EXAMPLES = """examples:
  run.py keys server --out keys                 keys/server.secret for curve.secret_key, keys/server.pub for every client
  run.py keys client cam1 --out keys            keys/cam1.secret for the client, keys/cam1.pub for the server's curve.clients
  run.py keys list my.toml                      the clients that a server with this config takes, and their keys
"""
SERVER = "server"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the parser of ``keys`` its three commands."""
    parser.epilog, parser.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(required=True, metavar="WHAT")

    def add(name: str, function: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
        example = next(line for line in EXAMPLES.splitlines() if line.startswith(f"  run.py keys {name} ")).strip()
        command = commands.add_parser(name, help=about, description=about, epilog=f"example: {example.split('   ')[0]}")
        command.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
        command.set_defaults(command=function)
        return command

    server = add("server", _make_server, "make a server's pair of keys")
    client = add("client", _make_client, "make a client's pair of keys")
    client.add_argument("name", metavar="NAME", help="the client's name, in the server's logs and for its turns")
    for command in (server, client):
        command.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the two files go; made if missing")
    add("list", _list, "list the clients that a server takes").add_argument("config", metavar="CONFIG", help="a TOML file")


def _make_server(options: argparse.Namespace) -> int:
    return _make(options, SERVER, "curve.secret_key of the server's config", "every client, as its server_key")


def _make_client(options: argparse.Namespace) -> int:
    try:
        # Hidden files are on no list.
        name = str(NAME.accept("" if options.name.startswith(".") else options.name))
    except ValueError:
        expected = f"{NAME.expected}, not beginning with a dot"
        raise ConfigError(f'keys client: name "{printable(options.name)}": expected {expected}') from None
    return _make(options, name, f"{name} alone, as its key_file", "the directory curve.clients of the server")


def _make(options: argparse.Namespace, name: str, secret_for: str, public_for: str) -> int:
    # Imported here: the supervisor reads its command line with this module and stays without zmq.
    import zmq

    from .curve import check_has_curve

    check_has_curve()
    key, secret_key = zmq.curve_keypair()
    public, secret = write_key_pair(options.out, name, KeyPair(key.decode(), secret_key.decode()))
    if options.json:
        print(json.dumps({"name": name, "public_key": key.decode(), "public_file": str(public), "secret_file": str(secret)}))
    else:
        print(f"{secret}  secret, for {secret_for}\n{public}  for {public_for}\npublic key {key.decode()}")
    return 0


def _list(options: argparse.Namespace) -> int:
    """Print who may come in; 1 when a file has no usable key."""
    from .curve import AllowList

    config = load_config(Path(options.config))
    if config.curve is None:
        raise ConfigError(f"{options.config}: has no [curve]: its server asks no client for a key")
    allowed = AllowList(config.curve.clients)
    server_key = read_key_pair(config.curve.secret_key).public
    clients = sorted((name, key) for key, name in allowed.names.items())
    if options.json:
        print(json.dumps({"server_key": server_key, "clients": dict(clients), "wrong": allowed.faults}))
    else:
        _print_list(server_key, clients, allowed.faults)
    return 1 if allowed.faults else 0


def _print_list(server_key: str, clients: Sequence[tuple[str, str]], faults: Mapping[str, str]) -> None:
    print(f"{'(server)':<24} {server_key}")
    for name, key in clients:
        print(f"{name:<24} {key}")
    for file, reason in faults.items():
        print(f"{file:<24} not taken: {reason}")
