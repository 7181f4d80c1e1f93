"""What one run measures: a server that is up, the lane, its stages, and the requests for it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import usage
from bench.arguments import WORKLOADS, concurrencies, shapes
from bench.inputs import checked_requests, file_rows, packed_requests, random_rows
from bench.machine import private_directory
from bench.requests import Requests
from bench.servers import FUSED, STAGES, Server, serving, serving_text
from bench.workloads import Rows, by_name
from clients import Client, SlotlineError
from schemas.messages import MetadataReply
from schemas.status import ConfigError
from schemas.wire import MAX_INLINE_BYTES, MAX_PACKED

CUTS = {"fused": FUSED, "stages": STAGES}
DEFAULT_OUTSTANDING = 64
# As many frames as a lease has by default.
DEFAULT_LEASED = 4


@dataclass(frozen=True, slots=True)
class Target:
    """Something to load.

    Args:
        stages: names of the lane's stages, in the order of a reply's times.
        about: what a report says of it.
        outstanding: the closed loop when none is asked for.
    """

    server: Server
    requests: Requests
    stages: tuple[str, ...]
    about: Mapping[str, Any]
    outstanding: int


@contextlib.contextmanager
def open_target(options: argparse.Namespace) -> Iterator[Target]:
    """Serve what the command line names, or find the running server, and yield it with its requests.

    Raises:
        ConfigError: nothing, or two things, were named; the server cannot be reached; the lane or its inputs are not clear.
    """
    if bool(options.target) == bool(options.endpoint):
        raise ConfigError(f"name what to measure: one of {', '.join(WORKLOADS)}, a config file, `demo`, or --endpoint")
    with ExitStack() as stack:
        if options.target in WORKLOADS:
            yield _workload(stack, options)
        else:
            server = _server(stack, options)
            yield _lane(server, options)


def _workload(stack: ExitStack, options: argparse.Namespace) -> Target:
    if options.input or options.model or options.shape:
        raise ConfigError(f"{options.target} has inputs and a lane of its own: give --input, --shape and --model with a config")
    workload = by_name(options.data)[options.target]()
    frames = max([*concurrencies(options.concurrency), workload.outstanding]) if options.lease else 0
    config = workload.config(CUTS[options.cut], options.replicas, lease_frames=frames)
    server = stack.enter_context(serving_text(stack.enter_context(private_directory()), config))
    about = {
        "workload": options.target,
        "cut": options.cut,
        "replicas": options.replicas,
        "model": workload.lane,
        "config": config,
    }
    requests = _requests(workload.lane, workload.rows, options.packed)
    return Target(server, requests, _metadata(server, workload.lane).stages, about, workload.outstanding)


def _server(stack: ExitStack, options: argparse.Namespace) -> Server:
    """Return the running server, or one that serves the config."""
    if options.endpoint:
        path = options.endpoint.removeprefix("ipc://")
        endpoint = options.endpoint if path == options.endpoint else f"ipc://{Path(path).absolute()}"
        return Server(endpoint, usage.server_pid(endpoint))
    config = options.target if options.target == "demo" else Path(options.target).absolute()
    if isinstance(config, Path) and not config.is_file():
        raise ConfigError(f"{options.target}: no such workload and no such config file; there are {', '.join(WORKLOADS)}")
    return stack.enter_context(serving(stack.enter_context(private_directory()), config))


def _lane(server: Server, options: argparse.Namespace) -> Target:
    lane = _metadata(server, options.model or _only_lane(server))
    rows: Rows = file_rows(lane, options.input) if options.input else random_rows(lane, shapes(options.shape))
    about = {
        "config": Path(options.target).read_text("utf-8") if options.target and options.target != "demo" else options.target,
        "endpoint": options.endpoint,
        "model": lane.name,
        "inputs": [str(file) for file in options.input] or "random",
    }
    outstanding = DEFAULT_LEASED if options.lease else DEFAULT_OUTSTANDING
    return Target(server, _requests(lane.name, rows, options.packed), lane.stages, about, outstanding)


def _requests(lane: str, rows: Rows, packed: int) -> Requests:
    """Return the rows as messages of *packed* requests.

    Raises:
        ConfigError: they cannot be packed.
    """
    if packed == 1:
        return checked_requests(lane, rows)
    values = [value for row in rows for value in row.values()]
    small = all(hasattr(value, "nbytes") and value.nbytes <= MAX_INLINE_BYTES for value in values)
    if packed > MAX_PACKED or len(values) != len(rows) or not small:
        raise ConfigError(f"--packed {packed}: expected at most {MAX_PACKED}, of one input of at most {MAX_INLINE_BYTES} bytes")
    return packed_requests(lane, rows, packed)


def _metadata(server: Server, lane: str) -> MetadataReply:
    with _reached(server.endpoint) as client:
        return client.metadata(lane)


def _only_lane(server: Server) -> str:
    """Return the one lane of a server.

    Raises:
        ConfigError: it has several.
    """
    if not server.endpoint.startswith("ipc://"):
        raise ConfigError("name the lane with --model")
    with _reached(f"{server.endpoint}.control") as client:
        names = sorted({name.split(".")[1] for name in client.stats() if name.startswith("lane.")})
    if len(names) != 1:
        raise ConfigError(f"there are several lanes: name one with --model: {', '.join(names)}")
    return names[0]


@contextlib.contextmanager
def _reached(endpoint: str) -> Iterator[Client]:
    """Yield a client; what it says of the server is a person's mistake in one line."""
    try:
        with Client(endpoint) as client:
            yield client
    except SlotlineError as error:
        raise ConfigError(str(error)) from None
