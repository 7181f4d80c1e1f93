"""The peers' side of the benchmark: the HTTP generator, the models, and what is said to and read from each server."""

from __future__ import annotations

import contextlib
import json
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from bench_helpers import needs_generator

from bench.load import HTTP, Load, run_load
from bench.peers import servers
from bench.peers.calls import (
    Answer,
    binary_numbers,
    call,
    json_numbers,
    raw_request,
    triton_request,
    triton_shared_request,
)
from bench.peers.models import write_image, write_tick
from bench.peers.servers import PEERS, running_peer
from bench.peers.suite import ROWS, run_peers
from bench.requests import Requests
from bench.rows import Figures, MissingError, outcome
from bench.suite import Suite
from schemas.status import ConfigError

Reply = Callable[[int, bytes], tuple[int, bytes]]


@contextlib.contextmanager
def scripted_http(reply: Reply) -> Iterator[int]:
    """Serve ``reply(n, body)``, a status and a body, to the n-th request (from 0); yield the port."""
    count = iter(range(1 << 30))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body are two sends: without this the second one waits for the first one's acknowledgement.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = reply(next(count), body)
            if status == 0:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def short(*, outstanding: int = 4, rate: float = 0.0) -> Load:
    """Return 0.2 s of HTTP."""
    return Load(outstanding, rate=rate, seconds=0.2, warm_up_s=0.0, drain_s=10.0, window_s=0.05, generator=HTTP)


@needs_generator
@pytest.mark.parametrize("size", [0, 10, 300_000])
def test_every_http_request_is_answered_once(size: int) -> None:
    """Small bodies and ones that take several sends, answers of every size."""
    seen: list[bytes] = []

    def reply(_count: int, body: bytes) -> tuple[int, bytes]:
        seen.append(body)
        return 200, body

    bodies = [bytes([index]) * size for index in range(2)]
    with scripted_http(reply) as port:
        requests = Requests.http([raw_request("/", "", body) for body in bodies])
        report = run_load(f"http://127.0.0.1:{port}", requests, short())

    assert report.is_clean
    assert report.sent == len(seen)
    assert set(seen) <= set(bodies)


@needs_generator
def test_an_open_loop_over_http_keeps_its_rate() -> None:
    """What the schedule says is sent, whatever the server does."""
    with scripted_http(lambda _count, body: (200, body)) as port:
        report = run_load(
            f"http://127.0.0.1:{port}", Requests.http([raw_request("/", "", b"x")]), short(outstanding=64, rate=200)
        )

    assert report.is_clean
    assert 4 <= report.sent <= 41


@needs_generator
def test_other_statuses_and_broken_connections_are_errors() -> None:
    """By their status; 0 is a connection that ended. The next request has a new one."""
    outcomes = {3: (503, b"busy"), 5: (0, b"")}
    with scripted_http(lambda count, body: outcomes.get(count, (200, body))) as port:
        report = run_load(f"http://127.0.0.1:{port}", Requests.http([raw_request("/", "", b"x")]), short(outstanding=1))

    assert report.errors_by_code == {"503": 1, "0": 1}
    assert (report.lost, report.ok) == (0, report.sent - 2)
    assert not report.is_clean


@needs_generator
def test_nobody_there_is_one_line() -> None:
    """It names the endpoint."""
    with pytest.raises(ConfigError, match=r"http://127.0.0.1:1: Connection refused"):
        run_load("http://127.0.0.1:1", Requests.http([b"POST / HTTP/1.1\r\n\r\n"]), short())


def test_the_models_run(tmp_path: Path) -> None:
    """Of the shapes and the size that are promised, the same at each writing."""
    onnxruntime = pytest.importorskip("onnxruntime")
    for write, name, shape, outputs in ((write_tick, "x", (2, 64), 3), (write_image, "input", (2, 3, 224, 224), 1000)):
        path = write(tmp_path)
        first = path.read_bytes()
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        rows = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        (scores,) = session.run(None, {name: rows})
        assert scores.shape == (2, outputs)
        assert scores.std() > 0.1
        assert np.isfinite(scores).all()
        assert write(tmp_path).read_bytes() == first
    assert 9_500_000 < path.stat().st_size < 10_500_000


def test_triton_is_asked_in_the_protocols_binary_form() -> None:
    """The JSON part says how long the tensor behind it is; a file has its length before it."""
    head, _, body = triton_request("/p", "photo", b"jpeg").partition(b"\r\n\r\n")
    length = int(head.split(b"Inference-Header-Content-Length: ")[1])
    (tensor,) = json.loads(body[:length])["inputs"]

    assert body[length:] == struct.pack("<I", 4) + b"jpeg"
    assert tensor == {"name": "jpeg", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": 8}}
    shared = triton_shared_request("/p", "frame", bytes(10)).partition(b"\r\n\r\n")[2]
    assert json.loads(shared)["inputs"][0]["parameters"]["shared_memory_byte_size"] == 10


def test_numbers_are_read_from_each_form_of_answer() -> None:
    """Behind Triton's JSON, behind the classes of a photo, from a JSON list."""
    scores = np.arange(5, dtype=np.float32)
    binary = bytes(20) + scores.tobytes()
    for skip, head in ((b"", b"HTTP/1.1 200 OK"), (b"{..}", b"HTTP/1.1 200 OK\r\ninference-header-content-length: 4")):
        assert binary_numbers("photo", Answer(200, head, skip + binary)).tolist() == scores.tolist()
    assert json_numbers("photo", Answer(200, b"", b"[0, 1, 2, 3, 4]")).tolist() == scores.tolist()


def test_a_call_returns_status_and_body() -> None:
    """Of an answer that comes in parts."""
    with scripted_http(lambda _count, body: (418, body * 3)) as port:
        answer = call(port, raw_request("/", "", b"abc" * 1000))

    assert (answer.status, answer.body) == (418, b"abc" * 3000)


def test_a_peer_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its rows are skipped with that."""
    monkeypatch.setattr(servers, "ENVIRONMENTS", tmp_path)
    for peer in {peer.environment: peer for peers in PEERS.values() for peer in peers}.values():
        assert peer.app.is_file()
        with (
            pytest.raises(MissingError, match=f"{peer.environment} is not installed: run bench/peers/setup {peer.environment}"),
            running_peer(peer, b"", np.zeros(1, np.float32), None),
        ):
            pass


def test_without_any_peer_all_rows_are_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is started for them."""
    monkeypatch.setattr(servers, "ENVIRONMENTS", tmp_path)
    figures = Figures()
    run_peers(Suite(figures, {name for row in ROWS for name in row.figures}, None, pairs=1, seconds=1.0))

    found = [outcome(row, figures) for row in ROWS]
    assert figures.values == {}
    assert all(row["ok"] is None and "mosec is not installed: run bench/peers/setup mosec; " in row["skipped"] for row in found)
