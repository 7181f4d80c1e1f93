"""The server that the tests of foreign clients share: its lanes, what they are sent, and how it is looked at."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import configs
import numpy as np
import pytest
from foreign_probe import Reply, input_token
from foreign_stages import OVERFLOW, RAISE
from onnx_files import node, value, write_model
from raw_client import statistics
from server import PATIENCE_S, Server, left_behind, wait_until
from stages_for_tests import ABORT, HANG

from schemas.status import Code
from schemas.tensors import ITEM_BYTES, DType, pack_bytes
from stages.demo import config_path

# A budget that outlasts any restart: without one the lane's default holds, of which a replaced broker may use up all.
PATIENT = "budget_us=50000000"
FUNCTION = """
[lane.{name}]
slots = {slots}
backlog = {backlog}
max_encoded_bytes = 4096
default_budget_us = 50_000_000
hang_limit_ms = {hang_limit_ms}
idempotent = {idempotent}
[lane.{name}.decode]
use = "foreign_stages:obey"
outputs = [{{ name = "echo", dtype = "UINT8", shape = [-1], max_shape = [4096] }}]
"""
BASE = """
[server]
drain_s = 2
max_message_bytes = 2_000_000
[lane.echo]
slots = 64
max_encoded_bytes = 1_000_000
max_age_us = 60_000_000
max_batch_size = 64
"""
CONFIG = (
    BASE
    + FUNCTION.format(name="few", slots=1, backlog=1, hang_limit_ms=60_000, idempotent="false")
    + FUNCTION.format(name="bad", slots=128, backlog=256, hang_limit_ms=60_000, idempotent="false")
)
FRAGILE = """
[lane.fragile]
slots = 4
max_encoded_bytes = 4096
default_budget_us = 50_000_000
[lane.fragile.decode]
use = "foreign_stages:obey"
dies_with = "{place}/fragile"
outputs = [{{ name = "echo", dtype = "UINT8", shape = [-1], max_shape = [4096] }}]
"""
MODELS = """
[lane.photo]
workers = "models"
model = "{surface}"
slots = 4
max_encoded_bytes = 200_000
max_pixels = 65_536
[lane.photo.decode]
use = "image"
color = "grey"
[lane.photo.preprocess]
use = "standardize"
[lane.gather]
workers = "models"
model = "gather.onnx"
slots = 64
max_encoded_bytes = 4096
max_batch_size = 16
[lane.rows]
workers = "models"
model = "{trading}"
slots = 4
max_encoded_bytes = 4096
max_rows = 3
[lane.rows.decode]
use = "foreign_stages:repeat"
outputs = [{{ name = "features", dtype = "FP32", shape = [-1, 67], max_shape = [16, 67] }}]
"""


def told(*first: int) -> str:
    """Return a payload that tells a function lane what to do."""
    return input_token("payload", "UINT8", (len(first),), bytes(first))


TICK = input_token("x", "FP32", (2, 2), np.arange(4, dtype="<f4").tobytes())
WORKS, HANGS, ABORTS, RAISES, OVERFLOWS = (told(first) for first in (0, HANG, ABORT, RAISE, OVERFLOW))


def all_lanes(place: Path) -> str:
    """Return the config of the shared server, after writing its model: data FP32 [rows, 3] picked by INT64 [rows, 3]."""
    inputs = [value("data", 1, "rows", 3), value("picks", 7, "rows", 3)]
    write_model(
        place / "gather.onnx", [node("GatherElements", ["data", "picks"], ["y"], axis=1)], inputs, [value("y", 1, "rows", 3)]
    )
    stuck = FUNCTION.format(name="stuck", slots=4, backlog=16, hang_limit_ms=1000, idempotent="true")
    _, _, pair = configs.waiting(str(place)).replace("slots = 2\n", "slots = 2\nidempotent = true\n").partition("drain_s = 10\n")
    demo = config_path().parent
    models = MODELS.format(surface=demo / "surface_qc.onnx", trading=demo / "trading_mlp.onnx")
    return CONFIG + stuck + pair + FRAGILE.format(place=place) + models


@pytest.fixture(scope="module")
def foreign_server() -> Iterator[Server]:
    """One server for the tests that do it no lasting harm."""
    place = Path(tempfile.mkdtemp(prefix="slt-"))
    running = Server(place, all_lanes(place))
    try:
        running.launch()
        # It has nine processes: on a machine that does other things too they take longer than Server waits.
        wait_until(lambda: running.ready_line() or running.poll() is not None, "the server", timeout_s=4 * PATIENCE_S)
        yield running.wait_ready()
        assert statistics(running.control)["ledger.balanced"]
        running.stop()
        wait_until(lambda: not left_behind(place), "the end")
    finally:
        print(running.errors()[-4000:])
        running.kill()
        shutil.rmtree(place, ignore_errors=True)


def some_content(dtype: DType, shape: Sequence[int]) -> tuple[bytes | list[bytes], bytes]:
    """Return contents of a tensor, as the probe is told and as they travel."""
    made = random.Random(repr((dtype, shape)))
    count = int(np.prod(shape))
    if dtype == DType.BYTES:
        elements = [made.randbytes(made.randrange(9)) for _ in range(count)]
        return elements, pack_bytes(elements)
    content = made.randbytes(ITEM_BYTES.get(dtype, 100) * count)
    return content, content


def assert_refused(reply: Reply, code: Code, field: str) -> None:
    """Fail unless the call was refused with *code* because of *field*."""
    assert (reply.get("error"), reply.get("code"), reply.get("field")) == ("RequestRefused", code, field), reply


def assert_failed(reply: Reply, code: Code) -> None:
    """Fail unless the server says that it failed with *code*."""
    assert (reply.get("error"), reply.get("code")) == ("RequestFailed", code), reply


def received(server: Server) -> int:
    """Return how many requests the server's present life has received; 0 while it has none."""
    try:
        return int(statistics(server.control)["ledger.received"])
    except AssertionError:
        return 0


def kill_broker(server: Server) -> None:
    """Kill the broker and wait until the supervisor has seen it."""
    deaths = len(server.events("broker_died"))
    os.kill(server.child("broker"), signal.SIGKILL)
    wait_until(lambda: len(server.events("broker_died")) > deaths, "the broker's death")
    wait_until(lambda: "broker" in server.children(), "the next broker")


def kill_stage(server: Server, name: str) -> None:
    """Kill a stage's process, and wait until another has taken its place."""
    pid = server.child(name)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: server.children().get(name, pid) != pid, f"another {name}")
