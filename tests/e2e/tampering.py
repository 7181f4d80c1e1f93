"""A proxy that damages what it passes on: what corruption on the way does to requests."""

from __future__ import annotations

import threading
from pathlib import Path

import zmq

from schemas.layout import read_layout, route_if_readable
from schemas.status import Kind, Place

POLL_MS = 10_000


class TamperingProxy:
    """Stands between one client and a server, and turns one bit of the payload of each request. One thread."""

    def __init__(self, place: Path, server: str) -> None:
        self.endpoint = f"ipc://{place}/proxy"
        self._server = server
        self._context = zmq.Context()
        self._stop = self._context.socket(zmq.PAIR)
        self._stop.bind("inproc://stop")
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> TamperingProxy:
        """Start it."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._stop.send(b"")
        self._thread.join(POLL_MS / 1000)
        assert not self._thread.is_alive(), "the proxy hangs"
        self._stop.close()
        self._context.term()
        Path(self.endpoint.removeprefix("ipc://")).unlink()

    def _run(self) -> None:
        stop, front, back = (self._context.socket(kind) for kind in (zmq.PAIR, zmq.ROUTER, zmq.DEALER))
        stop.connect("inproc://stop")
        front.bind(self.endpoint)
        back.connect(self._server)
        client = b""
        while True:
            ready = dict(zmq.zmq_poll([(front, zmq.POLLIN), (back, zmq.POLLIN), (stop, zmq.POLLIN)], POLL_MS))
            if stop in ready or not ready:
                break
            if front in ready:
                client, *frames = front.recv_multipart()
                back.send_multipart(damaged(frames))
            if back in ready:
                front.send_multipart([client, *back.recv_multipart()])
        for socket in (stop, front, back):
            socket.close(0)


def damaged(frames: list[bytes]) -> list[bytes]:
    """Return a message with one bit of its payload turned; only requests have one."""
    header, *payload = frames
    route = route_if_readable(header)
    assert route is not None
    if route.kind != Kind.INFER_REQUEST:
        return frames
    tensor = read_layout(header).tensors[0]
    if tensor.place == Place.INLINE:
        return [turned(header, tensor.inline_at), *payload]
    return [header, turned(payload[0], 0), *payload[1:]]


def turned(raw: bytes, at: int) -> bytes:
    """Return *raw* with the lowest bit of one byte turned."""
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
