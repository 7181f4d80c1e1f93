"""The blocking client against a real server, and against one that misbehaves as real ones do not do on demand."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import configs
import numpy as np
import pytest
from places import StartServer
from raw_client import statistics
from scripted_server import ScriptedServer, answer, hang_up, silence
from server import ROOT, Server, left_behind, wait_until
from stages_for_tests import HANG

from clients import (
    AsyncClient,
    Busy,
    Cancelled,
    Client,
    ConnectionLost,
    DeadlineExceeded,
    Encoded,
    RequestRefused,
    Result,
    ServerUnreachable,
    SlotlineError,
)
from schemas.error_templates import ErrorTemplates
from schemas.status import Code, Kind
from schemas.tensors import DType

DEMO = ROOT / "stages" / "demo"
TICK = {"x": np.ones(4, np.float32)}
CONFIG = f"""
[lane.ticks]
model = "{DEMO / "trading_mlp.onnx"}"
max_encoded_bytes = 4096
slots = 64
max_batch_size = 32
processes = [["decode", "preprocess", "infer", "postprocess"]]
[lane.echo]
slots = 8
max_encoded_bytes = 4_000_000
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One server with the lanes ``ticks`` and ``echo`` for the tests that do it no harm."""
    place = Path(tempfile.mkdtemp(prefix="slt-"))
    running = Server(place, CONFIG)
    try:
        yield running.start()
        assert running.stop() == 0
        wait_until(lambda: not left_behind(place), "the end")
    finally:
        running.kill()
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client of that server."""
    with Client(server.endpoint) as connected:
        yield connected


@pytest.fixture(scope="module")
def features() -> np.ndarray[Any, np.dtype[np.float32]]:
    """Rows of real market features, (rows, 67) float32."""
    rows: np.ndarray[Any, np.dtype[np.float32]] = np.load(DEMO / "trading_test.npz")["features"]
    return rows


# --- a real server -----------------------------------------------------------------------------------------------------------


def test_ticks_equal_a_direct_run(client: Client, features: np.ndarray[Any, Any]) -> None:
    """Bit for bit, whatever rows shared a batch."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(DEMO / "trading_mlp.onnx"))
    names = [output.name for output in session.get_outputs()]

    results = client.infer_many("ticks", [{"features": row[None]} for row in features[:300]])

    for row, result in zip(features, results, strict=False):
        expected = dict(zip(names, session.run(None, {"features": row[None]}), strict=True))
        assert result.keys() == expected.keys()
        assert all(np.array_equal(result[name], expected[name]) for name in expected)


def test_many_calls_in_flight_get_their_own_answers(client: Client) -> None:
    """Submitted at once, completed as they come."""
    calls = {client.submit("echo", {"x": np.full(3, number)}): number for number in range(100)}

    assert {calls[call]: call.result()["x"].tolist() for call in client.as_completed(calls)} == {n: [n] * 3 for n in range(100)}


@pytest.mark.parametrize("copy", [True, False])
def test_large_arrays_travel_whole(client: Client, copy: bool) -> None:
    """In frames, copied or lent."""
    array = np.random.default_rng(1).random((500, 700)).astype(np.float32)

    assert np.array_equal(client.infer("echo", {"x": array, "y": array[:100, ::2]}, copy=copy)["x"], array)


def test_an_array_may_change_once_the_call_is_made(client: Client) -> None:
    """The default is a copy, whatever its size."""
    array = np.zeros(400_000, np.float32)
    call = client.submit("echo", {"x": array})
    array[:] = 1

    assert not call.result()["x"].any()


def test_every_kind_of_value_comes_back(client: Client) -> None:
    """Numbers of any order, bytes, an encoded blob."""
    result = client.infer(
        "echo",
        {
            "turned": np.arange(6, dtype=">i4").reshape(2, 3).T,
            "names": np.array([b"a", b"b\0"], object),
            "picture": Encoded(b"\x89PNG...", "image/png"),
        },
    )

    assert result["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert result["names"].tolist() == [b"a", b"b\0"]
    assert result["picture"].tobytes() == b"\x89PNG..."


def test_what_the_server_refuses_is_raised_with_its_reason(client: Client) -> None:
    """An unknown model and a wrong datatype."""
    with pytest.raises(RequestRefused, match=r"MODEL_NOT_FOUND.*got nobody"):
        client.infer("nobody", TICK)
    with pytest.raises(RequestRefused, match=r"features: expected FP32, got FP64") as raised:
        client.infer("ticks", {"features": np.zeros((1, 67))})
    assert raised.value.field == "features"


def test_errors_take_their_places_among_many_results(client: Client) -> None:
    """And the first of them is raised when they are not wanted there."""
    inputs = [{"features": np.zeros((1, 67), np.float32)}, {"features": np.zeros((1, 66), np.float32)}]

    good, bad = client.infer_many("ticks", inputs, return_exceptions=True)
    assert not isinstance(good, SlotlineError)
    assert isinstance(bad, RequestRefused)
    with pytest.raises(RequestRefused, match="BAD_SHAPE"):
        client.infer_many("ticks", inputs)


def test_a_budget_ends_a_call_on_both_sides(client: Client) -> None:
    """Whoever notices first, the caller sees the same exception."""
    with pytest.raises(DeadlineExceeded):
        client.infer("echo", TICK, budget_us=1)


def test_questions_are_answered(server: Server, client: Client) -> None:
    """State, readiness and metadata on the clients' endpoint; counters on the control endpoint."""
    assert client.health().state == "serving"
    assert client.ready()
    assert client.ready("echo")
    assert client.metadata("ticks").inputs[0].dtype == DType.FP32
    with pytest.raises(RequestRefused, match="control socket"):
        client.stats()
    with Client(server.control) as control:
        assert control.stats()["epoch"] == f"{client.epoch:016x}"


def test_calls_end_with_the_server_and_the_next_one_finds_its_successor(make_server: StartServer) -> None:
    """Killed with a call in flight: the call ends at once; the epoch tells that it is another life."""
    server = make_server(configs.misbehaving(idempotent=True)).start()
    with Client(server.endpoint, timeout_s=30) as client:
        first = client.epoch
        call = client.submit("bad", {"payload": np.array([HANG], np.uint8)})
        os.kill(server.child("broker"), signal.SIGKILL)

        with pytest.raises(ConnectionLost, match="closed the connection"):
            call.result()
        wait_until(lambda: client.ready("echo"), "the new server")
        assert client.infer("echo", TICK)["x"].tolist() == [1] * 4
        assert client.epoch != first
    assert server.stop() == 0


def test_nothing_is_lost_when_the_server_is_told_to_stop(make_server: StartServer) -> None:
    """Each call made before the end has a result, or learns that the server is going down."""
    server = make_server(CONFIG).start()
    with Client(server.endpoint) as client:
        calls = [client.submit("echo", {"x": np.full(3, number)}) for number in range(150)]
        wait_until(lambda: int(statistics(server.control)["ledger.received"]) > 0, "requests")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0

        client.wait(calls)
        assert {type(call.outcome) for call in calls} <= {Result, Busy}
        assert all(call.outcome.code == Code.DRAINING for call in calls if isinstance(call.outcome, Busy))


# --- a scripted one ----------------------------------------------------------------------------------------------------------


def test_every_call_in_flight_ends_when_the_connection_does(place: Path) -> None:
    """Long before their deadlines; the next call connects anew."""
    script = iter([silence, silence, hang_up])
    with ScriptedServer(place, lambda route: next(script, answer)(route)) as server, Client(server.endpoint) as client:
        calls = [client.submit("any", TICK) for _ in range(3)]
        for call in calls:
            with pytest.raises(ConnectionLost, match=r"any: ipc://.*scripted: the server closed the connection"):
                call.result()

        result = client.infer("any", TICK)
        assert result["y"].tolist() == [server.received[-1].request_id]
        assert client.epoch == 2


def test_an_idle_client_connects_anew(place: Path) -> None:
    """A server that was restarted meanwhile costs nobody a call."""
    script = iter([answer, hang_up])
    scripted = ScriptedServer(place, lambda route: next(script, answer)(route))
    with scripted as server, Client(server.endpoint) as client, Client(server.endpoint) as other:
        client.infer("any", TICK)
        with pytest.raises(ConnectionLost):
            other.infer("any", TICK)
        connection = client._line._connection
        assert connection is not None
        wait_until(connection.has_ended, "the end of the idle connection")

        client.infer("any", TICK)
        assert client.epoch == 2


def test_a_reply_that_came_before_the_end_is_not_lost(place: Path) -> None:
    """Also when nobody had read it yet."""
    with ScriptedServer(place, answer) as server:
        client = Client(server.endpoint)
        call = client.submit("any", TICK)
        wait_until(lambda: server.received, "the request")

    with client:
        assert call.result()["y"].tolist() == [call.request_id]


def test_a_call_without_an_answer_ends_at_its_deadline(place: Path) -> None:
    """Not before, and a reply to another id does not help it."""
    with ScriptedServer(place, lambda route: answer(route._replace(request_id=999))) as server, Client(server.endpoint) as client:
        call = client.submit("any", TICK, budget_us=30_000)
        with pytest.raises(TimeoutError):
            call.result(timeout_s=0.001)
        assert not call.done()
        with pytest.raises(DeadlineExceeded):
            call.result()


def test_garbage_ends_the_connection(place: Path) -> None:
    """The reason is told, and the next call finds another one."""
    script = iter([lambda route: [b"garbage"]])
    with ScriptedServer(place, lambda route: next(script, answer)(route)) as server, Client(server.endpoint) as client:
        with pytest.raises(ConnectionLost, match="no valid message"):
            client.infer("any", TICK)
        client.infer("any", TICK)


def test_a_server_that_does_not_read_blocks_nobody(place: Path) -> None:
    """When every buffer is full, calls end by their budgets."""
    with ScriptedServer(place, silence, reads=False) as server, Client(server.endpoint) as client:
        inputs = {"x": np.zeros(60_000, np.uint8)}
        calls = [client.submit("any", inputs, budget_us=20_000)]
        while calls[-1].outcome is None:
            calls.append(client.submit("any", inputs, budget_us=20_000))

        assert isinstance(calls[-1].outcome, DeadlineExceeded)


def test_cancelling_tells_the_server(place: Path) -> None:
    """The call ends at once."""
    with ScriptedServer(place, silence) as server, Client(server.endpoint) as client:
        call = client.submit("any", TICK)

        assert client.cancel(call)
        with pytest.raises(Cancelled):
            call.result()
        wait_until(lambda: len(server.received) == 2, "the cancel")
        assert [(route.kind, route.request_id) for route in server.received] == [
            (Kind.INFER_REQUEST, call.request_id),
            (Kind.CANCEL, call.request_id),
        ]


def test_closing_ends_what_is_in_flight(place: Path) -> None:
    """And a closed client says so."""
    with ScriptedServer(place, silence) as server:
        with Client(server.endpoint) as client:
            call = client.submit("any", TICK)

        with pytest.raises(Cancelled, match="the client was closed"):
            call.result()
        with pytest.raises(RuntimeError, match="closed"):
            client.infer("any", TICK)


def test_a_client_belongs_to_one_thread(place: Path) -> None:
    """Another one gets an error that says what to do, and disturbs nothing."""
    errors: list[str] = []

    def use(client: Client) -> None:
        try:
            client.infer("any", TICK)
        except RuntimeError as error:
            errors.append(str(error))

    with ScriptedServer(place, answer) as server, Client(server.endpoint) as client:
        thread = threading.Thread(target=use, args=(client,))
        thread.start()
        thread.join()

        assert errors == ["a Client belongs to the thread that made it: make one in each thread"]
        client.infer("any", TICK)


def test_a_client_waits_for_a_server_that_is_starting(place: Path) -> None:
    """Within its timeout."""
    server = ScriptedServer(place, answer)
    threading.Timer(0.1, server.__enter__).start()

    with Client(server.endpoint, timeout_s=30) as client:
        client.infer("any", TICK)
    server.__exit__()


def test_a_refused_hello_is_raised(place: Path) -> None:
    """With the server's reason."""
    refusal = ErrorTemplates()

    def refuse(route: Any) -> list[bytes]:
        return [refusal.header((route.request_id, 0, 0), Code.BUSY, "max_clients: 1024 are connected")]

    with ScriptedServer(place, answer, hello=refuse) as server, pytest.raises(Busy, match="max_clients"):
        Client(server.endpoint)


# --- nobody ------------------------------------------------------------------------------------------------------------------


def test_nobody_there_is_said_with_endpoint_and_cure(place: Path) -> None:
    """After the timeout, not for ever."""
    with pytest.raises(ServerUnreachable, match=r"ipc://.*/nobody: no server answered within 0.1 s; .*slotline serve CONFIG"):
        Client(f"ipc://{place}/nobody", timeout_s=0.1)


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("run/line.ipc", r"did you mean ipc://run/line.ipc\?"),
        ("localhost:7000", r"did you mean tcp://localhost:7000\?"),
    ],
)
def test_an_endpoint_without_a_scheme_is_told_what_was_meant(endpoint: str, said: str) -> None:
    """By what it looks like."""
    with pytest.raises(ServerUnreachable, match=f"cannot be connected to .*{said}"):
        Client(endpoint)


def test_inputs_that_are_no_mapping_are_the_programs_mistake(server: Server) -> None:
    """Raised whatever on_failure says, by both clients."""
    with Client(server.endpoint) as client, pytest.raises(TypeError, match="inputs: expected a mapping"):
        client.infer("echo", np.ones(4), on_failure="NG")  # type: ignore[call-overload]

    async def ask() -> None:
        async with AsyncClient(server.endpoint) as client:
            await client.infer("echo", np.ones(4), on_failure="NG")  # type: ignore[call-overload]

    with pytest.raises(TypeError, match="inputs: expected a mapping"):
        asyncio.run(ask())


def test_something_else_that_listens_is_no_server(place: Path) -> None:
    """It closes, or speaks another protocol."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place}/other")
        listener.listen()

        def greet() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"220 mail.example.org ready\r\n" * 4)

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        with pytest.raises(ServerUnreachable, match="no server answered"):
            Client(f"ipc://{place}/other", timeout_s=0.3)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    (place / "other").unlink()


@pytest.mark.parametrize("endpoint", ["http://localhost", "ipc://" + "x" * 200, "nonsense", "tcp://127.0.0.1"])
def test_what_is_no_endpoint_is_said_at_once(endpoint: str) -> None:
    """With the form of one that is."""
    with pytest.raises(ServerUnreachable, match="expected ipc://PATH"):
        Client(endpoint)
