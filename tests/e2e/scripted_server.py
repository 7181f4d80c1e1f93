"""A server that does what real ones do not do on demand: silence, nonsense, ended connections. One thread, one ROUTER."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import zmq

from schemas.layout import route_if_readable
from schemas.messages import Limits, Welcome, write_message
from schemas.status import Kind
from schemas.templates import ReplyTemplate, TensorForm
from schemas.tensors import DType
from schemas.wire import Route

# What the server sends back for one message, as whole messages without the routing id; None = it ends all connections.
Script = Callable[[Route], Sequence[bytes] | None]
POLL_MS = 10_000


def answer(route: Route) -> list[bytes]:
    """Answer a request with one output ``y`` that holds its id."""
    template = ReplyTemplate("any", "1", [TensorForm("y", DType.INT64, (1,), 8, inline=True)], stages=0)
    return [template.header((route.request_id, 0, 0), b"", 0, 0, [np.int64(route.request_id).tobytes()])]


def silence(route: Route) -> list[bytes]:
    """Answer nothing."""
    return []


def hang_up(route: Route) -> None:
    """End the connection."""


class ScriptedServer:
    """Answers Hello, and everything else by its script; each time that it ends connections it begins another life.

    Attributes:
        received: the Route of each message but Hellos.
        headers: their headers.
    """

    def __init__(self, place: Path, script: Script, *, hello: Script | None = None, reads: bool = True) -> None:
        self.endpoint = f"ipc://{place}/scripted"
        self.received: list[Route] = []
        self.headers: list[bytes] = []
        self.epoch = 1
        self._script = script
        self._hello = hello or self._welcome
        self._reads = reads
        self._context = zmq.Context()
        self._stop = self._context.socket(zmq.PAIR)
        self._stop.bind("inproc://stop")
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ScriptedServer:
        """Start it."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it; what it was about to send still leaves."""
        self._stop.send(b"")
        self._thread.join(POLL_MS / 1000)
        assert not self._thread.is_alive(), "the scripted server hangs"
        self._stop.close()
        self._context.term()

    def _run(self) -> None:
        stop = self._context.socket(zmq.PAIR)
        stop.connect("inproc://stop")
        router = self._bind()
        while True:
            ready = dict(zmq.zmq_poll([(router, zmq.POLLIN), (stop, zmq.POLLIN)], POLL_MS))
            if stop in ready or not ready:
                break
            identity, header, *_ = router.recv_multipart()
            route = route_if_readable(header)
            assert route is not None
            is_hello = route.kind == Kind.HELLO
            if not is_hello:
                self.headers.append(header)
                self.received.append(route)
            replies = self._hello(route) if is_hello else self._script(route)
            for reply in replies or ():
                router.send_multipart([identity, reply])
            if replies is None:
                router.close(0)
                self.epoch += 1
                router = self._bind()
            elif not self._reads:
                stop.recv()
                break
        router.close(1000)
        stop.close()
        # ZeroMQ leaves the file of a socket behind.
        Path(self.endpoint.removeprefix("ipc://")).unlink()

    def _bind(self) -> zmq.Socket[bytes]:
        router = self._context.socket(zmq.ROUTER)
        router.bind(self.endpoint)
        return router

    def _welcome(self, route: Route) -> list[bytes]:
        return [write_message(Welcome("scripted", self.epoch, Limits()), (route.request_id, 0, 0))]
