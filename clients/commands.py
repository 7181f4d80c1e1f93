"""The commands that talk to a running server: ``infer`` sends files, ``status`` asks how it is. What they do and print."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator

from schemas.params import nested
from schemas.status import ConfigError

from .client import Client
from .errors import SlotlineError
from .files import infer_files


@contextlib.contextmanager
def reached() -> Iterator[None]:
    """Turn a client's exception about the server into one line.

    Raises:
        ConfigError: with the text of the exception.
    """
    try:
        yield
    except SlotlineError as error:
        raise ConfigError(str(error)) from None


def infer(options: argparse.Namespace) -> int:
    """Send files to a running server; 1 when some got no result."""
    server_key, key_file = options.server_key or "", options.key or ""
    with reached(), Client(options.endpoint, timeout_s=options.timeout, server_key=server_key, key_file=key_file) as client:
        results = infer_files(client, options.model, options.files)
    if options.json:
        print(json.dumps({"results": results}))
    for entry in [] if options.json else results:
        error = entry["error"]
        told = f"{error['code']}: {error['message']}" if error else entry.get("verdict") or json.dumps(entry["outputs"])
        print(f"{entry['file']}  {told}")
    return 0 if all(entry["ok"] for entry in results) else 1


def status(options: argparse.Namespace) -> int:
    """Say how a running server is; 1 when it is not ready."""
    with reached(), Client(options.endpoint) as client:
        health, ready = client.health(), client.ready()
    with reached(), Client(_control_of(options.endpoint)) as client:
        stats = dict(client.stats())
    found = {"state": health.state, "ready": ready, **nested(stats)}
    if options.json:
        print(json.dumps(found))
    else:
        print(f"{health.state}, {'ready' if ready else 'not ready'}")
        print("\n".join(f"{name:<34} {value}" for name, value in stats.items() if name != "state"))
    return 0 if ready else 1


def _control_of(endpoint: str) -> str:
    """Return where statistics are answered: beside a clients' ipc endpoint, or the control endpoint that was given."""
    is_clients = endpoint.startswith("ipc://") and not endpoint.endswith(("control", ".control"))
    return endpoint + ".control" if is_clients else endpoint
