"""How each peer is asked: whole HTTP requests as bytes, one such call, and what the numbers in its answer are."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CALL_LIMIT_S = 30.0
_BINARY = "application/octet-stream"
# Triton's names, datatypes and shapes of the inputs, and its outputs.
_TRITON: dict[str, tuple[str, str, list[int], list[str]]] = {
    "tick": ("x", "FP32", [1, 64], ["y"]),
    "photo": ("jpeg", "BYTES", [1, 1], ["classes", "scores"]),
    "frame": ("frame", "UINT8", [1080, 1920, 3], ["means", "flags"]),
}
# Where the numbers that are compared lie in a binary answer: behind the classes of a photo, before the flags of a frame.
_NUMBERS = {"tick": slice(0, 12), "photo": slice(20, 40), "frame": slice(0, 9 * 16 * 3 * 4)}
REGION = "slotline_frame"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: its status, head and body."""

    status: int
    head: bytes
    body: bytes


def raw_request(path: str, workload: str, body: bytes) -> bytes:
    """Return a request whose body is the input itself."""
    return _post(path, body, _BINARY)


def triton_request(path: str, workload: str, body: bytes) -> bytes:
    """Return a request in the binary form of the Open Inference Protocol."""
    name, dtype, shape, _ = _TRITON[workload]
    content = struct.pack("<I", len(body)) + body if dtype == "BYTES" else body
    tensor = {"name": name, "shape": shape, "datatype": dtype, "parameters": {"binary_data_size": len(content)}}
    head = _triton_head(workload, tensor)
    return _post(path, head + content, _BINARY, f"Inference-Header-Content-Length: {len(head)}\r\n")


def triton_shared_request(path: str, workload: str, body: bytes) -> bytes:
    """Return a request whose input lies in shared memory."""
    name, dtype, shape, _ = _TRITON[workload]
    where = {"shared_memory_region": REGION, "shared_memory_byte_size": len(body)}
    return _post(
        path, _triton_head(workload, {"name": name, "shape": shape, "datatype": dtype, "parameters": where}), "application/json"
    )


def _triton_head(workload: str, tensor: dict[str, Any]) -> bytes:
    outputs = [{"name": name, "parameters": {"binary_data": True}} for name in _TRITON[workload][3]]
    return json.dumps({"inputs": [tensor], "outputs": outputs}, separators=(",", ":")).encode()


def _post(path: str, body: bytes, content_type: str, more: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def binary_numbers(workload: str, answer: Answer) -> NDArray[np.float32]:
    """Return the numbers of an answer in binary form; Triton puts a JSON object before them, and says how long it is."""
    lines = [line.partition(b":") for line in answer.head.split(b"\r\n")]
    skip = next((int(value) for name, _, value in lines if name.lower() == b"inference-header-content-length"), 0)
    return np.frombuffer(answer.body[skip:][_NUMBERS[workload]], np.float32)


def json_numbers(workload: str, answer: Answer) -> NDArray[np.float32]:
    """Return the numbers of an answer that is a JSON list."""
    return np.array(json.loads(answer.body), np.float32).ravel()


def call(port: int, request: bytes) -> Answer:
    """Send one request and return its answer.

    Raises:
        OSError: nobody listens, or the connection ended.
    """
    with socket.create_connection(("127.0.0.1", port), CALL_LIMIT_S) as connection:
        connection.sendall(request)
        content = b""
        while True:
            head, found, body = content.partition(b"\r\n\r\n")
            if found and len(body) >= _content_length(head):
                return Answer(int(head.split()[1]), head, body)
            chunk = connection.recv(1 << 20)
            if not chunk:
                raise ConnectionError("the connection ended before the answer did")
            content += chunk


def _content_length(head: bytes) -> int:
    lines = [line.partition(b":") for line in head.split(b"\r\n")]
    return next((int(value) for name, _, value in lines if name.lower() == b"content-length"), 0)


@contextlib.contextmanager
def shared_frame(content: bytes) -> Iterator[Callable[[int], None]]:
    """Put an input where Triton reads it, and yield what tells the server at a port of it. Triton names such memory by a path."""
    path = Path("/dev/shm") / f"{REGION}.{os.getpid()}"
    path.write_bytes(content)

    def register(port: int) -> None:
        order = {"key": f"/{path.name}", "offset": 0, "byte_size": len(content)}
        body = json.dumps(order).encode()
        answer = call(port, _post(f"/v2/systemsharedmemory/region/{REGION}/register", body, "application/json"))
        if answer.status != 200:
            raise OSError(f"Triton does not take shared memory: {answer.body[:200]!r}")

    try:
        yield register
    finally:
        path.unlink()
