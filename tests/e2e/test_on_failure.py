"""A station that asks with ``on_failure``: whatever dies, it has its verdict in time, and later it has real ones again."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import configs
import numpy as np
import pytest
from places import StartServer
from scripted_server import ScriptedServer, answer, hang_up, silence
from server import wait_until
from stages_for_tests import HANG

from clients import AsyncClient, Client, ConnectionLost, DeadlineExceeded, RequestRefused, ServerUnreachable, SlotlineError
from schemas.messages import Limits, Welcome, write_message
from schemas.wire import Route

BUDGET_US = 300_000
# No measure: ten times what was promised, so that a verdict that never comes fails the test.
WATCHDOG_S = 10 * (BUDGET_US / 1e6 + 0.1)
PART, STUCK_PART = (np.array([first, 1, 2, 3], np.uint8) for first in (0, HANG))


class Station:
    """Asks for verdicts by one of the two clients; one that cannot be had is "NG", and its error is kept."""

    def __init__(self, infer: Callable[..., Any], close: Callable[[], None]) -> None:
        self._infer = infer
        self.close = close
        self.error: SlotlineError | None = None

    def judge(self, model: str = "any", part: Any = PART, budget_us: int = BUDGET_US) -> str:
        """Return "OK" for any answer, else "NG"; fail when it takes far too long."""
        began = time.monotonic()
        self.error = None
        answer = self._infer(model, {"payload": part}, budget_us=budget_us, on_failure=self._reject)
        assert time.monotonic() - began < WATCHDOG_S
        return answer if isinstance(answer, str) else "OK"

    def _reject(self, error: SlotlineError) -> str:
        self.error = error
        return "NG"


@pytest.fixture(params=["blocking", "asyncio"])
def make_station(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Station]]:
    """Make stations with the blocking client, or with the asyncio client; none needs a server to be made."""
    made: list[Station] = []
    runner = asyncio.Runner()

    def make(endpoint: str) -> Station:
        if request.param == "blocking":
            client = Client(endpoint, connect=False)
            station = Station(client.infer, client.close)
        else:
            aio = AsyncClient(endpoint, connect=False)

            async def infer(*arguments: Any, **options: Any) -> Any:
                return await aio.infer(*arguments, **options)

            station = Station(lambda *arguments, **options: runner.run(infer(*arguments, **options)), aio.close)
        made.append(station)
        return station

    yield make
    for station in made:
        station.close()
    runner.close()


def kill_during(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal in a moment, when the next part is being judged."""
    threading.Timer(0.05, os.kill, (pid, number)).start()


def test_a_station_has_its_verdicts_whatever_dies(make_server: StartServer, make_station: Callable[[str], Station]) -> None:
    """It starts before its server; then stages are stopped, the broker is killed, and the supervisor."""
    server = make_server(configs.misbehaving(idempotent=True, hang_limit_ms=60_000))
    station = make_station(server.endpoint)
    assert station.judge("echo") == "NG"
    assert isinstance(station.error, ServerUnreachable)
    server.start()
    wait_until(lambda: station.judge("echo") == "OK", "the first verdict")

    os.kill(server.child("echo.0"), signal.SIGSTOP)
    assert station.judge("echo", budget_us=20_000) == "NG"
    assert isinstance(station.error, DeadlineExceeded)
    wait_until(lambda: station.judge("echo") == "OK", "a verdict after the stopped stage")

    kill_during(server.child("broker"))
    assert station.judge("bad", STUCK_PART) == "NG"
    assert isinstance(station.error, ConnectionLost | DeadlineExceeded)
    wait_until(lambda: station.judge("echo") == "OK", "a verdict after the killed broker")

    kill_during(server.pid)
    assert station.judge("bad", STUCK_PART) == "NG"
    wait_until(lambda: server.poll() is not None, "the supervisor's end")
    assert station.judge("echo") == "NG"
    assert isinstance(station.error, ConnectionLost | ServerUnreachable)
    server.start()
    wait_until(lambda: station.judge("echo") == "OK", "a verdict of another server")
    assert server.stop() == 0


def test_a_server_replaced_by_one_that_never_answers(place: Path, make_station: Callable[[str], Station]) -> None:
    """It takes requests, or not even a Hello; then a real one comes."""
    script = iter([answer, hang_up])
    with ScriptedServer(place, lambda route: next(script, answer)(route)) as server:
        station = make_station(server.endpoint)
        assert station.judge() == "OK"
        assert station.judge() == "NG"
    with ScriptedServer(place, silence):
        assert station.judge() == "NG"
        assert isinstance(station.error, DeadlineExceeded)
    with ScriptedServer(place, answer, hello=silence):
        wait_until(lambda: station.judge() == "NG" and isinstance(station.error, ServerUnreachable), "nobody")
    with ScriptedServer(place, answer):
        wait_until(lambda: station.judge() == "OK", "a verdict of the real server")


def test_a_server_is_reached_by_calls_that_are_shorter_than_connecting(
    place: Path, make_station: Callable[[str], Station]
) -> None:
    """What one call has begun the next one finds further."""

    def slow_hello(route: Route) -> list[bytes]:
        time.sleep(0.2)
        return [write_message(Welcome("scripted", 1, Limits()), (route.request_id, 0, 0))]

    with ScriptedServer(place, answer, hello=slow_hello) as server:
        station = make_station(server.endpoint)
        assert station.judge(budget_us=20_000) == "NG"
        wait_until(lambda: station.judge(budget_us=20_000) == "OK", "a verdict")


def test_a_value_is_returned_as_it_is(place: Path) -> None:
    """Also None; and what is wrong with the program is raised all the same."""
    with Client(f"ipc://{place}/nobody", connect=False) as client:
        assert client.infer("any", {"x": PART}, budget_us=1_000, on_failure=None) is None
        assert client.infer("any", {"x": PART}, budget_us=1_000, on_failure="NG") == "NG"
        with pytest.raises(ServerUnreachable):
            client.infer("any", {"x": PART}, budget_us=1_000)
    with ScriptedServer(place, answer) as server, Client(server.endpoint, connect=False) as client:
        assert client.infer("any", {"x": "text"}, on_failure=lambda error: type(error)) is RequestRefused
        with pytest.raises(TypeError, match="unknown option"):
            client.infer("any", {"x": PART}, on_failure="NG", budget=1)  # type: ignore[call-overload]
