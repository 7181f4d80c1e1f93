"""Processes killed with -9 in the demo's stream of ticks and photos: it serves again by itself."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest
from demo_load import DemoLoad
from places import StartServer
from raw_client import statistics
from server import DEMO, Server, wait_until

WORKERS = ("qc.decode+preprocess.0", "qc.infer.0", "qc.postprocess.0", "ticks.0")
# Answers after a kill that show that the stream goes on: more than one window of each lane.
GOES_ON = 1000


def kill(server: Server, name: str) -> None:
    """Kill one process with -9 and wait until another takes its place."""
    pid = server.child(name)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: server.children().get(name, pid) != pid, f"another {name}")


def is_up(server: Server) -> bool:
    """True when every lane is ready."""
    stats = statistics(server.control)
    return all(stats[f"lane.{lane}.ready"] for lane in ("qc", "ticks"))


def check_end(server: Server) -> None:
    """Fail unless the ledger balances, all slots are free and the server ends well."""
    stats = statistics(server.control)
    assert stats["ledger.balanced"]
    assert stats["ledger.in_flight"] == 0
    for lane in ("qc", "ticks"):
        assert stats[f"lane.{lane}.slots_free"] == stats[f"lane.{lane}.slots"]
    assert server.stop() == 0


def test_a_killed_stage_comes_back_and_nothing_is_lost(make_server: StartServer) -> None:
    """Each stage process in turn, then each twice in a row, the second time while it starts."""
    server = make_server(DEMO).start()
    load = DemoLoad(server.endpoint, seed=1)
    for name in (*WORKERS, *WORKERS):
        load.run_answers(GOES_ON)
        kill(server, name)
    for name in WORKERS:
        load.run_until(lambda: is_up(server))
        kill(server, name)
        kill(server, name)
    load.run_until(lambda: is_up(server))
    load.run_answers(GOES_ON)

    load.finish()
    check_end(server)
    load.close()
    assert len(server.deaths()) == 4 * len(WORKERS)
    print(f"{load.sent} requests, {len(server.deaths())} kills")


def test_a_stage_killed_at_the_first_start_comes_up(make_server: StartServer) -> None:
    """Killed before it was ever ready."""
    server = make_server(DEMO)
    server.launch()
    kill(server, "ticks.0")
    kill(server, "qc.infer.0")
    server.wait_ready()

    load = DemoLoad(server.endpoint, seed=2)
    load.run_answers(GOES_ON)
    load.finish()
    check_end(server)
    load.close()


def test_a_killed_broker_comes_back_with_a_new_epoch(make_server: StartServer) -> None:
    """Three times in the stream, the last time killed again while it starts. Requests of its life end with it; none is answered
    twice, the same connection serves on.
    """
    server = make_server(DEMO).start()
    load = DemoLoad(server.endpoint, seed=3)
    epochs = {statistics(server.control)["epoch"]}
    for kills in (1, 1, 2):
        load.run_answers(GOES_ON)
        for _ in range(kills):
            kill(server, "broker")
        load.client.give_up()
        load.run_answers(GOES_ON)
        epochs.add(statistics(server.control)["epoch"])

    load.client.finish()
    load.client.assert_nothing_amiss()
    assert not load.client.tally.errors
    check_end(server)
    load.close()
    assert len(epochs) == 4
    assert len(server.events("broker_died")) == 4


@pytest.mark.parametrize("times", [1, 2])
def test_a_broker_killed_at_the_first_start_comes_up(make_server: StartServer, times: int) -> None:
    """Killed before it ever served."""
    server = make_server(DEMO)
    server.launch()
    for _ in range(times):
        kill(server, "broker")
    server.wait_ready()

    load = DemoLoad(server.endpoint, seed=4)
    load.run_answers(GOES_ON)
    load.finish()
    check_end(server)
    load.close()


def test_a_stage_that_never_comes_up_ends_the_first_start(make_server: StartServer) -> None:
    """Five deaths while it starts: one line says which process, and the exit code is not 0."""
    server = make_server(DEMO)
    server.launch()
    while server.poll() is None:
        # It may be gone by itself between the two.
        with contextlib.suppress(KeyError, ProcessLookupError):
            os.kill(server.children()["ticks.0"], signal.SIGKILL)

    assert server.wait() == 1
    assert "process ticks.0 died five times, last by" in server.errors().splitlines()[-1]


def test_a_broker_that_never_comes_up_ends_the_first_start(make_server: StartServer) -> None:
    """Five deaths before it ever served: one line says of what, and the exit code is not 0."""
    server = make_server("[lane.echo]")
    server.launch()
    while server.poll() is None:
        with contextlib.suppress(KeyError, ProcessLookupError):
            os.kill(server.children()["broker"], signal.SIGKILL)

    assert server.wait() == 1
    said = "slotline: the broker died five times while the server started, last by signal SIGKILL: see its log lines above"
    assert server.errors().splitlines()[-1] == said


@pytest.mark.long
def test_nothing_is_lost_in_two_hundred_kills(make_server: StartServer) -> None:
    """A worker is killed every 1.1 s of load, each of the four in turn."""
    server = make_server(DEMO).start()
    load = DemoLoad(server.endpoint, seed=5)
    for at in range(200):
        load.run_for(1.1)
        kill(server, WORKERS[at % len(WORKERS)])

    load.finish()
    check_end(server)
    load.close()
