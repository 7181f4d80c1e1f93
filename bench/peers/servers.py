"""The peers as sides of the benchmark: each started in its own environment, and its answers compared."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import usage
from bench.machine import private_directory
from bench.peers.calls import (
    Answer,
    binary_numbers,
    call,
    json_numbers,
    raw_request,
    shared_frame,
    triton_request,
    triton_shared_request,
)
from bench.processes import READY_LIMIT_S, REPO, last_line
from bench.requests import Requests
from bench.rows import MissingError
from bench.servers import Server
from schemas.status import ConfigError

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE / "environments"
STOP_LIMIT_S = 10.0
# Answers are computed with another version of numpy, and rounded once more as JSON.
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Peer:
    """One server in one setting.

    Args:
        name: for reports, such as "mosec.batched".
        environment: the directory of its environment, below ENVIRONMENTS.
        request: makes a whole HTTP request of (path, workload, body).
        numbers: what an answer says.
        settings: environment variables.
    """

    name: str
    environment: str
    workload: str
    path: str
    request: Callable[[str, str, bytes], bytes]
    numbers: Callable[[str, Answer], NDArray[np.float32]]
    settings: Mapping[str, str]

    @property
    def app(self) -> Path:
        """The program."""
        return HERE / f"{self.environment}_app.py"

    @property
    def shares_memory(self) -> bool:
        """True when its input lies in shared memory."""
        return self.request is triton_shared_request


def _mosec(name: str, workload: str, **settings: str) -> Peer:
    return Peer(f"mosec{name}", "mosec", workload, "/inference", raw_request, binary_numbers, settings)


def _litserve(workload: str, **settings: str) -> Peer:
    return Peer("litserve", "litserve", workload, "/predict", raw_request, json_numbers, settings)


def _triton(name: str, workload: str, **settings: str) -> Peer:
    request = triton_shared_request if name else triton_request
    return Peer(f"triton{name}", "triton", workload, f"/v2/models/{workload}/infer", request, binary_numbers, settings)


# In the settings that each of them does best with on two cores: one worker for small models, two for large work.
PEERS = {
    "tick": (
        _mosec("", "tick", PEER_WORKERS="1"),
        _mosec(".batched", "tick", PEER_WORKERS="1", PEER_BATCH="64"),
        _litserve("tick", PEER_WORKERS="1"),
        _triton("", "tick", PEER_WORKERS="1"),
    ),
    "photo": (
        _mosec("", "photo", PEER_WORKERS="2"),
        _litserve("photo", PEER_WORKERS="2"),
        _triton("", "photo", PEER_WORKERS="2"),
    ),
    "frame": (
        _mosec("", "frame", PEER_WORKERS="2"),
        _triton("", "frame", PEER_WORKERS="2"),
        _triton(".shared", "frame", PEER_WORKERS="2"),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Running:
    """A peer that answers rightly."""

    peer: Peer
    server: Server
    requests: Requests


def python_of(peer: Peer) -> Path:
    """Return the Python of the peer's environment.

    Raises:
        MissingError: it is not installed.
    """
    python = ENVIRONMENTS / peer.environment / "bin" / "python"
    if not python.exists():
        raise MissingError(f"{peer.environment} is not installed: run bench/peers/setup {peer.environment}")
    return python


def check_installed(workload: str) -> None:
    """Raise MissingError unless one of the workload's peers is installed."""
    reasons = []
    for peer in PEERS[workload]:
        try:
            python_of(peer)
        except MissingError as error:
            reasons.append(str(error))
        else:
            return
    raise MissingError("; ".join(dict.fromkeys(reasons)))


@contextlib.contextmanager
def running_peer(peer: Peer, body: bytes, expected: NDArray[np.float32], model: Path | None) -> Iterator[Running]:
    """Start *peer*, wait until it answers *body* as *expected*, and end it after the block.

    Raises:
        MissingError: it is not installed.
        ConfigError: it does not start, or answers something else.
    """
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(private_directory())
        register = stack.enter_context(shared_frame(body)) if peer.shares_memory else None
        port = _free_port()
        settings = {**peer.settings, "PEER_WORKLOAD": peer.workload, "PEER_DIRECTORY": str(directory), "PYTHONPATH": str(REPO)}
        # Beside several workers, threads of the numeric libraries only take turns.
        settings |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | ({"PEER_MODEL": str(model)} if model else {})
        argv = [str(python_of(peer)), str(peer.app), "--port", str(port)]
        log = directory / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                argv, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env={**os.environ, **settings}, cwd=directory
            )
        stack.callback(_stop, process)
        request = peer.request(peer.path, peer.workload, body)
        _wait_right(peer, process, log, lambda: _ask(port, request, register), expected)
        yield Running(peer, Server(f"http://127.0.0.1:{port}", process.pid), Requests.http([request]))


def _ask(port: int, request: bytes, register: Callable[[int], None] | None) -> Answer:
    if register:
        register(port)
    return call(port, request)


def _wait_right(
    peer: Peer, process: subprocess.Popen[bytes], log: Path, ask: Callable[[], Answer], expected: NDArray[np.float32]
) -> None:
    """Ask until there is an answer, and compare it."""
    deadline = time.monotonic() + READY_LIMIT_S
    said = "nothing"
    while time.monotonic() < deadline and process.poll() is None:
        try:
            answer = ask()
        except OSError as error:
            said = str(error)
        else:
            if answer.status == 200:
                got = peer.numbers(peer.workload, answer)
                if got.shape != expected.shape or not np.allclose(got, expected, TOLERANCE, TOLERANCE):
                    raise ConfigError(
                        f"{peer.name}: its answer is not that of the work done here: {got[:5]}, expected {expected[:5]}"
                    )
                return
            said = f"{answer.status} {answer.body[:200]!r}"
        time.sleep(0.1)
    raise ConfigError(f"{peer.name} does not answer: {said}; its last words: {last_line(log)}")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and everything that it started."""
    everything = usage.tree(process.pid)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_LIMIT_S)
    for pid in everything:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
