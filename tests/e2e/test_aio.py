"""The asyncio client against a real server, and against one that misbehaves as real ones do not do on demand."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import configs
import numpy as np
import pytest
from places import StartServer
from scripted_server import ScriptedServer, answer, hang_up, silence
from server import PATIENCE_S, ROOT, Server, wait_until
from shared_server import shared_server
from stages_for_tests import HANG

from clients import (
    AsyncClient,
    Busy,
    Cancelled,
    Client,
    ConnectionLost,
    DeadlineExceeded,
    RequestRefused,
    ServerUnreachable,
    SlotlineError,
)
from schemas.error_templates import ErrorTemplates
from schemas.status import Code, Kind
from schemas.tensors import DType

T = TypeVar("T")

DEMO = ROOT / "stages" / "demo"
TICK = {"x": np.ones(4, np.float32)}
# More than the client takes in one go, and more than its socket keeps.
THOUSANDS = 3_000
CONFIG = f"""
[lane.ticks]
model = "{DEMO / "trading_mlp.onnx"}"
max_encoded_bytes = 4096
slots = 64
max_batch_size = 32
[lane.echo]
slots = 64
backlog = 4096
max_encoded_bytes = 4_000_000
"""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run *main* in a loop of its own, with a watchdog; the loop must have nothing to complain about."""

    complaints: list[dict[str, Any]] = []

    async def watched() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(PATIENCE_S):
            result = await main
        gc.collect()
        return result

    result = asyncio.run(watched())
    assert complaints == []
    return result


async def until(condition: Any, what: str) -> None:
    """Let the loop run until *condition* holds."""
    for _ in range(int(PATIENCE_S * 1000)):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError(f"waited for {what}")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One server with the lanes ``ticks`` and ``echo`` for the tests that do it no harm."""
    with shared_server(lambda _: CONFIG) as running:
        yield running


# --- a real server -----------------------------------------------------------------------------------------------------------


def test_results_are_those_of_the_blocking_client(server: Server) -> None:
    """Bit for bit, one at a time and packed."""
    rows = np.load(DEMO / "trading_test.npz")["features"][:300]
    inputs = [{"features": row[None]} for row in rows]
    with Client(server.endpoint) as blocking:
        expected = blocking.infer_many("ticks", inputs)

    async def main() -> None:
        async with AsyncClient(server.endpoint) as client:
            alone = [await client.infer("ticks", one) for one in inputs[:50]]
            many = await client.infer_many("ticks", inputs)
        for results in (alone, many):
            for result, right in zip(results, expected, strict=False):
                assert {name: array.tobytes() for name, array in result.items()} == {
                    name: array.tobytes() for name, array in right.items()
                }

    run(main())


def test_thousands_in_flight_get_their_own_answers_without_a_task(server: Server) -> None:
    """Submitted at once; the test's own task is the only one."""

    async def main() -> None:
        async with AsyncClient(server.endpoint) as client:
            calls = [client.submit("echo", {"x": np.full(3, number)}) for number in range(THOUSANDS)]
            tasks = len(asyncio.all_tasks())
            results = await asyncio.gather(*calls)
            assert [int(result["x"][0]) for result in results] == list(range(THOUSANDS))
            assert tasks == 1

    run(main())


def test_answers_are_seen_however_sends_and_replies_interleave(server: Server) -> None:
    """ZeroMQ's descriptor tells of news once; sending may swallow it."""

    async def follow(client: AsyncClient, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for number in range(150):
            result = await client.infer("echo", {"x": np.full(3, number)})
            assert result["x"].tolist() == [number] * 3
            for _ in range(rng.integers(3)):
                await asyncio.sleep(0)

    async def main() -> None:
        async with AsyncClient(server.endpoint) as client, asyncio.TaskGroup() as group:
            for seed in range(20):
                group.create_task(follow(client, seed))

    run(main())


@pytest.mark.parametrize("copy", [True, False])
def test_large_arrays_travel_whole(server: Server, copy: bool) -> None:
    """In frames, copied or lent."""
    array = np.random.default_rng(1).random((500, 700)).astype(np.float32)

    async def main() -> None:
        async with AsyncClient(server.endpoint) as client:
            results = await client.infer_many("echo", [{"x": array}] * 30, copy=copy)
            assert all(np.array_equal(result["x"], array) for result in results)

    run(main())


def test_errors_are_those_of_the_blocking_client(server: Server) -> None:
    """Raised where the call is awaited, or taking their places among many results."""
    good, bad = {"features": np.zeros((1, 67), np.float32)}, {"features": np.zeros((1, 66), np.float32)}

    async def main() -> None:
        async with AsyncClient(server.endpoint) as client:
            with pytest.raises(RequestRefused, match=r"MODEL_NOT_FOUND.*got nobody"):
                await client.infer("nobody", TICK)
            with pytest.raises(TypeError, match="unknown option"):
                client.submit("echo", TICK, budget=1)  # type: ignore[call-arg]
            with pytest.raises(DeadlineExceeded):
                await client.infer("echo", TICK, budget_us=1)
            first, second = await client.infer_many("ticks", [good, bad], return_exceptions=True)
            assert not isinstance(first, SlotlineError)
            assert isinstance(second, RequestRefused)
            with pytest.raises(RequestRefused, match="BAD_SHAPE"):
                await client.infer_many("ticks", [good, bad])

    run(main())


def test_questions_are_answered(server: Server) -> None:
    """State, readiness and metadata on the clients' endpoint; counters on the control endpoint."""

    async def main() -> None:
        async with AsyncClient(server.endpoint) as client, AsyncClient(server.control) as control:
            assert (await client.health()).state == "serving"
            assert await client.ready()
            assert await client.ready("echo")
            assert (await client.metadata("ticks")).inputs[0].dtype == DType.FP32
            with pytest.raises(RequestRefused, match="control socket"):
                await client.stats()
            assert (await control.stats())["epoch"] == f"{client.epoch:016x}"

    run(main())


def test_calls_end_with_the_server_and_the_next_one_finds_its_successor(make_server: StartServer) -> None:
    """Killed with calls in flight: each ends at once; the epoch tells that it is another life."""
    server = make_server(configs.misbehaving(idempotent=True)).start()

    async def main() -> None:
        async with AsyncClient(server.endpoint, timeout_s=PATIENCE_S) as client:
            first = client.epoch
            calls = [client.submit("bad", {"payload": np.array([HANG], np.uint8)}) for _ in range(20)]
            os.kill(server.child("broker"), signal.SIGKILL)

            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in ended} == {ConnectionLost}
            while not await client.ready("echo"):
                await asyncio.sleep(0.01)
            assert (await client.infer("echo", TICK))["x"].tolist() == [1] * 4
            assert client.epoch != first

    run(main())
    assert server.stop() == 0


# --- a scripted one ----------------------------------------------------------------------------------------------------------


def test_every_call_in_flight_ends_when_the_connection_does(place: Path) -> None:
    """Long before their deadlines; the next call connects anew."""
    script = iter([silence, silence, hang_up])

    async def main(server: ScriptedServer) -> None:
        async with AsyncClient(server.endpoint) as client:
            ended = await asyncio.gather(*(client.infer("any", TICK) for _ in range(3)), return_exceptions=True)
            assert [type(error) for error in ended] == [ConnectionLost] * 3
            assert "scripted: the server closed the connection" in str(ended[0])

            result = await client.infer("any", TICK)
            assert result["y"].tolist() == [server.received[-1].request_id]
            assert client.epoch == 2

    with ScriptedServer(place, lambda route: next(script, answer)(route)) as server:
        run(main(server))


def test_an_idle_client_connects_anew(place: Path) -> None:
    """A server that was restarted meanwhile costs nobody a call."""
    script = iter([answer, hang_up])

    async def main(server: ScriptedServer) -> None:
        async with AsyncClient(server.endpoint) as client, AsyncClient(server.endpoint) as other:
            await client.infer("any", TICK)
            with pytest.raises(ConnectionLost):
                await other.infer("any", TICK)
            await until(lambda: client._line._connection is None, "the end of the idle connection")

            await client.infer("any", TICK)
            assert client.epoch == 2

    with ScriptedServer(place, lambda route: next(script, answer)(route)) as server:
        run(main(server))


def test_a_reply_that_came_before_the_end_is_not_lost(place: Path) -> None:
    """Also when the loop had other things to do meanwhile."""

    async def main() -> None:
        with ScriptedServer(place, answer) as server:
            client = AsyncClient(server.endpoint)
            await client.connect()
            call = client.submit("any", TICK)
            # The loop stands still until the server is gone.
            wait_until(lambda: server.received, "the request")
        assert (await call)["y"].tolist() == [server.received[-1].request_id]
        client.close()

    run(main())


def test_calls_without_an_answer_end_at_their_own_deadlines(place: Path) -> None:
    """None before its own, whatever the order in which they were made: one timer for all."""

    async def ended_after_us(client: AsyncClient, budget_us: int) -> float:
        began_ns = time.monotonic_ns()
        with pytest.raises(DeadlineExceeded):
            await client.infer("any", TICK, budget_us=budget_us)
        return (time.monotonic_ns() - began_ns) / 1000

    async def main(server: ScriptedServer) -> None:
        async with AsyncClient(server.endpoint) as client:
            budgets_us = (90_000, 30_000, 60_000)
            lasted_us = await asyncio.gather(*(ended_after_us(client, budget_us) for budget_us in budgets_us))
        assert all(lasted >= budget for lasted, budget in zip(lasted_us, budgets_us, strict=True))

    with ScriptedServer(place, silence) as server:
        run(main(server))


def test_garbage_ends_the_connection(place: Path) -> None:
    """The reason is told, and the next call finds another one."""
    script = iter([lambda route: [b"garbage"]])

    async def main(server: ScriptedServer) -> None:
        async with AsyncClient(server.endpoint) as client:
            with pytest.raises(ConnectionLost, match="no valid message"):
                await client.infer("any", TICK)
            await client.infer("any", TICK)

    with ScriptedServer(place, lambda route: next(script, answer)(route)) as server:
        run(main(server))


def test_a_server_that_does_not_read_blocks_nobody(place: Path) -> None:
    """When every buffer is full, calls are held and end by their budgets; none of them is kept."""

    async def main(server: ScriptedServer) -> None:
        async with AsyncClient(server.endpoint) as client:
            inputs = {"x": np.zeros(60_000, np.uint8)}
            calls = []
            while not client._line._held:
                calls += [client.submit("any", inputs, budget_us=50_000) for _ in range(100)]
                await asyncio.sleep(0)
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in ended} == {DeadlineExceeded}
            assert not client._line._held

    with ScriptedServer(place, silence, reads=False) as server:
        run(main(server))


def test_cancelling_the_future_or_its_task_tells_the_server(place: Path) -> None:
    """Also a timeout of asyncio's own, and what is left of many requests."""

    async def main(server: ScriptedServer) -> None:
        async with AsyncClient(server.endpoint) as client:
            call = client.submit("any", TICK)
            call.cancel()
            task = asyncio.create_task(client.infer("any", TICK))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.infer("any", TICK), 0.01)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.infer_many("any", [TICK] * 5), 0.01)

            await until(lambda: sum(r.kind == Kind.CANCEL for r in server.received) == 8, "the cancels")
            assert client._session.in_flight == 0

    with ScriptedServer(place, silence) as server:
        run(main(server))


def test_closing_ends_what_is_in_flight(place: Path) -> None:
    """And a closed client says so."""

    async def main(server: ScriptedServer) -> None:
        async with AsyncClient(server.endpoint) as client:
            call = client.submit("any", TICK)
        with pytest.raises(Cancelled, match="the client was closed"):
            await call
        with pytest.raises(RuntimeError, match="closed"):
            await client.infer("any", TICK)

    with ScriptedServer(place, silence) as server:
        run(main(server))


def test_a_client_belongs_to_one_loop(place: Path) -> None:
    """Another one gets an error that says what to do."""

    async def use(client: AsyncClient) -> None:
        await client.infer("any", TICK)

    with ScriptedServer(place, answer) as server, asyncio.Runner() as runner:
        client = AsyncClient(server.endpoint)
        runner.run(use(client))
        with pytest.raises(RuntimeError, match="make one in each loop"):
            run(use(client))
        runner.run(use(client))
        client.close()


def test_calls_made_before_there_is_a_server_are_sent_when_there_is_one(place: Path) -> None:
    """With the contents that they were made with."""
    server = ScriptedServer(place, answer)

    async def main() -> None:
        async with AsyncClient(server.endpoint, connect=False, timeout_s=PATIENCE_S) as client:
            calls = [client.submit("any", TICK) for _ in range(10)]
            await asyncio.sleep(0)
            threading.Timer(0.1, server.__enter__).start()
            results = await asyncio.gather(*calls)
            assert [int(result["y"][0]) for result in results] == [route.request_id for route in server.received]

    run(main())
    server.__exit__()


def test_a_call_that_finds_no_server_in_its_budget_says_so(place: Path) -> None:
    """Nothing was sent, which is not DeadlineExceeded."""

    async def main() -> None:
        async with AsyncClient(f"ipc://{place}/nobody", connect=False) as client:
            with pytest.raises(ServerUnreachable, match=r"nobody: no server answered in time; .*slotline serve CONFIG"):
                await client.infer("any", TICK, budget_us=50_000)
            assert not client._line._held

    run(main())


def test_connecting_to_nobody_ends_with_the_timeout(place: Path) -> None:
    """Something else that listens is no server either."""

    async def main(endpoint: str) -> None:
        async with AsyncClient(endpoint, timeout_s=0.1):
            pass

    with pytest.raises(ServerUnreachable, match="no server answered"):
        run(main(f"ipc://{place}/nobody"))
    with ScriptedServer(place, silence, hello=silence) as server, pytest.raises(ServerUnreachable, match="no server answered"):
        run(main(server.endpoint))
    with pytest.raises(ServerUnreachable, match="did you mean ipc://nonsense"):
        run(main("nonsense"))


def test_a_refused_hello_is_raised(place: Path) -> None:
    """With the server's reason."""
    refusal = ErrorTemplates()

    def refuse(route: Any) -> list[bytes]:
        return [refusal.header((route.request_id, 0, 0), Code.BUSY, "max_clients: 1024 are connected")]

    async def main(server: ScriptedServer) -> None:
        with pytest.raises(Busy, match="max_clients"):
            async with AsyncClient(server.endpoint):
                pass
        async with AsyncClient(server.endpoint, connect=False) as client:
            with pytest.raises(Busy, match="max_clients"):
                await client.infer("any", TICK)

    with ScriptedServer(place, answer, hello=refuse) as server:
        run(main(server))
