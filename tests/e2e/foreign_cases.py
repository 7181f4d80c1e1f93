"""What every client in another language must do, as tests that each of them inherits.

A subclass gives the fixtures ``probe_command`` and ``demo_command``: how its two programs are started.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from foreign_demo import fnv1a, judged_by_python, ticks_by_python
from foreign_hostile import CUT_OFF, hostile_replies, sound_reply
from foreign_probe import Probe, Reply, file_token, input_token
from places import StartServer
from raw_client import statistics
from scripted_server import ScriptedServer
from server import DEMO, PATIENCE_S, Server, left_behind, wait_until
from stages_for_tests import ABORT, HANG

from clients import Client
from schemas.status import Code
from schemas.tensors import ITEM_BYTES, DType, pack_bytes, unpack_bytes
from schemas.wire import Route
from stages.demo import parts_path, ticks_path

TICKS = 2_000
CONFIG = """
[server]
drain_s = 2
max_message_bytes = 2_000_000
[lane.echo]
slots = 64
max_encoded_bytes = 1_000_000
max_batch_size = 64
[lane.few]
slots = 1
backlog = 1
max_encoded_bytes = 4096
default_budget_us = 50_000_000
hang_limit_ms = 60_000
[lane.few.decode]
use = "stages_for_tests:misbehave"
outputs = [{ name = "echo", dtype = "UINT8", shape = [-1], max_shape = [4096] }]
[lane.bad]
slots = 128
max_encoded_bytes = 4096
default_budget_us = 50_000_000
hang_limit_ms = 60_000
idempotent = false
[lane.bad.decode]
use = "stages_for_tests:misbehave"
outputs = [{ name = "echo", dtype = "UINT8", shape = [-1], max_shape = [4096] }]
"""
TICK = input_token("x", "FP32", (2, 2), np.arange(4, dtype="<f4").tobytes())
WORKS = input_token("payload", "UINT8", (1,), bytes(1))
HANGS = input_token("payload", "UINT8", (1,), bytes([HANG]))
ABORTS = input_token("payload", "UINT8", (1,), bytes([ABORT]))
# What a client may say of a reply that was tampered with: it is still sound, or is not, or is for nobody, or ends the connection.
OF_HOSTILE = {
    "ok",
    "BadReply",
    "DeadlineExceeded",
    "ConnectionLost",
    "RequestRefused",
    "RequestFailed",
    "Busy",
    "Cancelled",
    "Superseded",
}


@pytest.fixture(scope="module")
def foreign_server() -> Iterator[Server]:
    """One server for the tests that do it no lasting harm."""
    place = Path(tempfile.mkdtemp(prefix="slt-"))
    running = Server(place, CONFIG)
    try:
        yield running.start()
        running.stop()
        wait_until(lambda: not left_behind(place), "the end")
    finally:
        running.kill()
        shutil.rmtree(place, ignore_errors=True)


class ForeignClientCases:
    """The tests; not collected by itself."""

    @pytest.fixture
    def probe(self, foreign_server: Server, probe_command: list[str]) -> Iterator[Probe]:
        """A probe that is connected to that server."""
        with Probe(probe_command) as probe:
            probe.connect(foreign_server.endpoint)
            yield probe

    # --- results -------------------------------------------------------------------------------------------------------------

    def test_outputs_equal_those_of_the_python_client(
        self, make_server: StartServer, place: Path, demo_command: list[str], probe_command: list[str]
    ) -> None:
        """The demo's photos, and 2,000 ticks one at a time and packed: the same bytes."""
        server = make_server(DEMO).start()
        features = np.resize(np.load(ticks_path())["features"], (TICKS, 67)).astype("<f4")
        (place / "ticks.f32").write_bytes(features.tobytes())
        command = [*demo_command, server.endpoint, str(parts_path()), str(place / "ticks.f32"), str(place / "rows")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        print(f"{command[0]}: {told['ticks']}")

        with Client(server.endpoint, timeout_s=PATIENCE_S) as client:
            assert told["qc"] == judged_by_python(client)
            rows = ticks_by_python(client, features)
        assert (place / "rows").read_text().splitlines() == [*rows, *rows]
        assert told["ticks"]["count"] == TICKS
        assert told["ticks"]["digest"] == told["ticks"]["packed_digest"] == fnv1a("".join(rows).encode())
        photo = file_token("image", "ENCODED", (1,), parts_path() / told["qc"][0]["file"])
        with Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            assert probe.infer("qc", photo, options="on_failure=UNKNOWN") == {"value": told["qc"][0]["verdict"]}
        assert server.stop() == 0

    @pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype != DType.UNSET], ids=lambda dtype: dtype.name)
    def test_every_datatype_comes_back_in_every_rank(self, probe: Probe, dtype: DType) -> None:
        """Ranks 0 to 8 and zero rows; the bytes, the shape and the datatype are those that were sent."""
        shapes: Sequence[tuple[int, ...]] = (
            [(1,)] if dtype == DType.ENCODED else [(), *((2, 1, 3, 1, 1, 2, 1, 1)[:n] for n in range(1, 9)), (0, 3)]
        )
        for shape in shapes:
            content, flat = some_content(dtype, shape)
            reply = probe.infer("echo", input_token("x", dtype.name, shape, content))

            assert reply["ok"], (shape, reply)
            output = reply["outputs"]["x"]
            assert (output["dtype"], output["shape"], output["hex"]) == (dtype.name, list(shape), flat.hex())
            if dtype == DType.BYTES:
                assert output["elements"] == [element.hex() for element in unpack_bytes(flat, len(content))[0]]

    @pytest.mark.parametrize("copy", [0, 1])
    def test_large_inputs_travel_whole(self, probe: Probe, place: Path, copy: int) -> None:
        """In frames of their own, lent or copied, beside one that travels inline."""
        content = random.Random(1).randbytes(300_000)
        (place / "large").write_bytes(content)
        large = [file_token(name, "FP32", (75_000,), place / "large") for name in ("x", "y")]

        outputs = probe.infer("echo", large[0], TICK.replace("x:", "t:"), large[1], options=f"copy={copy}")["outputs"]

        assert outputs["x"]["hex"] == outputs["y"]["hex"] == content.hex()
        assert outputs["t"]["hex"] == TICK.rpartition(":")[2]

    def test_many_calls_are_answered(self, probe: Probe) -> None:
        """Packed, with those that do not fit inline sent on their own; and single ones in flight together."""
        assert probe.ask("many", 300, "echo", "-", TICK) == {"ok": 300}
        assert probe.ask("many", 20, "echo", "-", input_token("x", "UINT8", (5_000,), bytes(5_000))) == {"ok": 20}
        probe.ask("begin", 60, "echo", "-", TICK)
        assert probe.ask("end") == {"ok": 60}

    # --- refusals ------------------------------------------------------------------------------------------------------------

    def test_refusals_carry_code_and_field(self, probe: Probe, place: Path) -> None:
        """What the server says, and what the client finds before it sends."""
        (place / "large").write_bytes(bytes(2_500_000))
        tensor = input_token("x", "FP32", (3,), bytes(8))
        nan = input_token("x", "FP32", (1,), np.float32(np.nan).tobytes())

        assert_refused(probe.infer("nobody", TICK), Code.MODEL_NOT_FOUND, "model")
        assert_refused(probe.infer("echo", tensor), Code.SIZE_MISMATCH, "x")
        assert_refused(probe.infer("bad", WORKS, options="output=nothing"), Code.BAD_NAME, "outputs")
        assert_refused(probe.infer("echo", nan, options="finite=1"), Code.NOT_FINITE, "x")
        assert_refused(probe.infer("echo", file_token("x", "UINT8", (2_500_000,), place / "large")), Code.TOO_LARGE, "inputs")
        assert_refused(probe.infer("echo", input_token("x", "FP32", (1,) * 9, bytes(4))), Code.BAD_SHAPE, "x")
        assert probe.infer("echo", TICK)["ok"]

    def test_a_full_lane_is_busy_and_budgets_end_calls(self, probe: Probe, foreign_server: Server) -> None:
        """One request runs and hangs, one waits, the next comes at a bad time."""
        probe.ask("begin", 1, "few", "budget_us=1500000", HANGS)
        wait_until(lambda: statistics(foreign_server.control)["lane.few.slots_free"] == 0, "the first request")
        probe.ask("begin", 1, "few", "budget_us=1500000", HANGS)
        refused = probe.infer("few", HANGS)

        assert (refused["error"], refused["code"]) == ("Busy", Code.BUSY)
        assert refused["retry_after_us"] > 0
        assert probe.ask("end") == {"DeadlineExceeded": 2}
        late = probe.infer("echo", TICK, options="budget_us=1")
        assert (late["error"], late["code"]) == ("DeadlineExceeded", Code.DEADLINE_EXCEEDED)

    def test_a_failure_of_the_server_is_told_apart(self, probe: Probe) -> None:
        """A stage that dies of a request which must not run twice."""
        failed = probe.infer("bad", ABORTS)

        assert (failed["error"], failed["code"]) == ("RequestFailed", Code.STAGE_DIED)
        assert probe.infer("echo", TICK)["ok"]

    # --- what dies -----------------------------------------------------------------------------------------------------------

    def test_calls_end_with_the_broker_and_the_client_goes_on(self, make_server: StartServer, probe_command: list[str]) -> None:
        """Killed twice: with calls that hang, and under load. Every call ends; the same client process connects anew."""
        server = make_server(CONFIG).start()
        with Probe(probe_command) as probe:
            first = probe.connect(server.endpoint)
            probe.ask("begin", 100, "bad", "-", HANGS)
            wait_until(lambda: received(server) >= 100, "the requests")
            kill_broker(server)
            assert probe.ask("end") == {"ConnectionLost": 100}
            assert probe.infer("echo", TICK)["ok"]

            before = received(server)
            probe.say("many", 10_000, "echo", "-", TICK)
            wait_until(lambda: received(server) >= before + 500, "requests under way")
            kill_broker(server)
            ended = probe.hear()
            assert ended.keys() == {"ok", "ConnectionLost"}
            assert sum(ended.values()) == 10_000
            assert ended["ConnectionLost"] <= 512
            assert probe.infer("echo", TICK)["ok"]
            assert probe.connect(server.endpoint) != first
        assert server.stop() == 0

    def test_a_fail_safe_call_returns_its_value_whatever_dies(self, make_server: StartServer, probe_command: list[str]) -> None:
        """A stage that hangs, an output that is not there, a broker that is killed, and no server at all."""
        server = make_server(CONFIG).start()
        with Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            assert probe.infer("bad", HANGS, options="on_failure=NG;budget_us=200000") == {"value": "NG"}
            assert probe.infer("echo", TICK, options="on_failure=NG") == {"value": "NG"}
            probe.say("infer", "bad", "on_failure=NG", HANGS)
            wait_until(lambda: received(server) == 3, "the request")
            kill_broker(server)
            assert probe.hear() == {"value": "NG"}
            assert server.stop() == 0
            assert probe.infer("echo", TICK, options="on_failure=NG;budget_us=200000") == {"value": "NG"}
            assert probe.infer("echo", TICK, options="budget_us=200000")["error"] == "ServerUnreachable"

    # --- what is hostile -----------------------------------------------------------------------------------------------------

    def test_hostile_replies_end_their_call_and_nothing_else(self, place: Path, probe_command: list[str]) -> None:
        """Words overwritten, ends cut off, bodies of another kind: each call ends, the next one is served."""
        hostile = list(hostile_replies())
        replies = iter(hostile)
        ends: list[str] = []

        def script(route: Route) -> list[bytes]:
            mutate = next(replies, None)
            return [sound_reply(route) if mutate is None else mutate(route)]

        with ScriptedServer(place, script) as server, Probe(probe_command) as probe:
            probe.connect(server.endpoint)
            for _ in hostile:
                reply = probe.infer("any", TICK, options="budget_us=30000")
                ends.append("ok" if reply["ok"] else reply["error"])
            assert probe.infer("any", TICK)["outputs"]["score"]["dtype"] == "FP64"
        assert set(ends) <= OF_HOSTILE
        assert ends.count("BadReply") > len(ends) / 2
        assert ends[-len(CUT_OFF) :] == ["BadReply"] * len(CUT_OFF)


# --- pieces ------------------------------------------------------------------------------------------------------------------


def some_content(dtype: DType, shape: Sequence[int]) -> tuple[bytes | list[bytes], bytes]:
    """Return contents of a tensor, as the probe is told and as they travel."""
    made = random.Random(repr((dtype, shape)))
    count = int(np.prod(shape))
    if dtype == DType.BYTES:
        elements = [made.randbytes(1 + made.randrange(9)) for _ in range(count)]
        return elements, pack_bytes(elements)
    content = made.randbytes(ITEM_BYTES.get(dtype, 100) * count)
    if dtype == DType.BOOL:
        content = bytes(byte & 1 for byte in content)
    return content, content


def assert_refused(reply: Reply, code: Code, field: str) -> None:
    """Fail unless the call was refused with *code* because of *field*."""
    assert (reply.get("error"), reply.get("code"), reply.get("field")) == ("RequestRefused", code, field), reply


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
