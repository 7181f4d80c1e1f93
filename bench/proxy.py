"""libzmq's own ROUTER/DEALER proxy as a process, and a worker for it as one writes it with pyzmq.

``python -m bench.proxy relay FRONT BACK`` | ``python -m bench.proxy worker BACK``. Both print a ready line and run until killed.
"""

from __future__ import annotations

import sys

import zmq


def relay(front_endpoint: str, back_endpoint: str) -> None:
    """Bind both sides without high-water marks and relay; ``zmq.proxy`` is libzmq's C function."""
    context = zmq.Context()
    front, back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    for socket, endpoint in ((front, front_endpoint), (back, back_endpoint)):
        socket.set_hwm(0)
        socket.bind(endpoint)
    print("ready", front_endpoint, flush=True)
    zmq.proxy(front, back)


def worker(endpoint: str) -> None:
    """Connect to the proxy's back and send every message back unchanged."""
    socket = zmq.Context().socket(zmq.DEALER)
    socket.set_hwm(0)
    socket.connect(endpoint)
    print("ready", endpoint, flush=True)
    while True:
        socket.send_multipart(socket.recv_multipart())


if __name__ == "__main__":
    if sys.argv[1] == "relay":
        relay(*sys.argv[2:])
    else:
        worker(*sys.argv[2:])
