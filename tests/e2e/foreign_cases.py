"""What every client in another language must do on one server's lanes, as tests that each of them inherits.

A subclass gives the fixtures ``probe_command`` and ``demo_command``: how its two programs are started. What dies, how connections
end and who is refused is in ``foreign_deaths.py``, ``foreign_connections.py`` and ``foreign_keys.py``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from foreign_demo import fnv1a, judged_by_python, ticks_by_python
from foreign_lanes import (
    ABORTS,
    HANGS,
    OVERFLOWS,
    PATIENT,
    RAISES,
    TICK,
    WORKS,
    assert_failed,
    assert_refused,
    foreign_server,
    kill_stage,
    some_content,
    told,
)
from foreign_probe import Probe, file_token, input_token, strided_token
from places import StartServer
from raw_client import statistics
from server import DEMO, PATIENCE_S, ROOT, Server, wait_until
from tensor_table import EMPTY_SHAPES, GOLDEN, NUMPY, SHAPES, golden_array, golden_bytes

from clients import Client
from schemas.status import Code
from schemas.tensors import DType, unpack_bytes
from stages.demo import parts_path, ticks_path

__all__ = ["ForeignClientCases", "foreign_server"]

TICKS = 2_000
IMAGES = ROOT / "tests" / "data" / "images"


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

    @pytest.mark.parametrize("dtype", GOLDEN, ids=lambda dtype: dtype.name)
    def test_each_datatype_at_each_rank_is_as_in_the_table(self, probe: Probe, dtype: DType) -> None:
        """Ranks 0 to 8, zero rows, uneven elements: the table's bytes go out, and come back with their shape and datatype."""
        for shape in (*SHAPES, *EMPTY_SHAPES):
            flat = golden_bytes(dtype, shape)
            elements = golden_array(dtype, shape).reshape(-1).tolist()
            reply = probe.infer("echo", input_token("x", dtype.name, shape, elements if dtype == DType.BYTES else flat))

            assert reply["ok"], (shape, reply)
            output = reply["outputs"]["x"]
            assert (output["dtype"], output["shape"], output["hex"]) == (dtype.name, list(shape), flat.hex())
            if dtype == DType.BYTES:
                assert output["elements"] == [element.hex() for element in elements]

    def test_an_encoded_blob_and_many_uneven_elements_come_back(self, probe: Probe) -> None:
        """The one datatype that the table has not, and a thousand elements of which some are empty."""
        blob, _ = some_content(DType.ENCODED, (1,))
        elements, flat = some_content(DType.BYTES, (10, 100))
        outputs = probe.infer("echo", input_token("x", "ENCODED", (1,), blob), input_token("y", "BYTES", (10, 100), elements))[
            "outputs"
        ]

        assert (outputs["x"]["dtype"], outputs["x"]["hex"]) == ("ENCODED", bytes(blob).hex())
        assert outputs["y"]["elements"] == [element.hex() for element in unpack_bytes(flat, 1000)[0]]

    @pytest.mark.parametrize("order", ["little", "big"])
    @pytest.mark.parametrize("dtype", [dtype for dtype in GOLDEN if dtype != DType.BYTES], ids=lambda dtype: dtype.name)
    def test_any_strides_and_byte_order_arrive_as_the_same_numbers(self, probe: Probe, dtype: DType, order: str) -> None:
        """A part of a larger array, upside down with gaps, and one that is transposed."""
        kind = np.dtype(NUMPY[dtype]).newbyteorder("<" if order == "little" else ">")
        memory = np.frombuffer(b"\xee" * (5 * 8 * kind.itemsize), kind).reshape(5, 8).copy()
        for view in (memory[3:0:-2, 1:7:2], memory[1:4, 5:7].T):
            view[...] = golden_array(dtype, (2, 3))
            output = probe.infer("echo", strided_token("x", dtype.name, memory, view))["outputs"]["x"]

            assert (output["shape"], output["hex"]) == ([2, 3], golden_bytes(dtype, (2, 3)).hex())

    @pytest.mark.parametrize("copy", [0, 1])
    def test_large_inputs_travel_whole(self, probe: Probe, place: Path, copy: int) -> None:
        """In frames of their own, lent or copied, beside one that travels inline; with a checksum of all of them."""
        content = random.Random(1).randbytes(300_000)
        (place / "large").write_bytes(content)
        large = [file_token(name, "FP32", (75_000,), place / "large") for name in ("x", "y")]

        reply = probe.infer("echo", large[0], TICK.replace("x:", "t:"), large[1], options=f"copy={copy};checksum=1")

        assert reply["outputs"]["x"]["hex"] == reply["outputs"]["y"]["hex"] == content.hex()
        assert reply["outputs"]["t"]["hex"] == TICK.rpartition(":")[2]

    def test_checksums_are_those_of_the_server(self, probe: Probe) -> None:
        """Of every length up to three blocks: the server compares."""
        for size in range(97):
            assert probe.infer("echo", input_token("x", "UINT8", (size,), bytes(range(size))), options="checksum=1")["ok"], size

    def test_many_calls_are_answered(self, probe: Probe) -> None:
        """Packed, with those that do not fit inline sent on their own; and single ones in flight together."""
        assert probe.ask("many", 300, "echo", PATIENT, TICK) == {"ok": 300}
        assert probe.ask("many", 20, "echo", PATIENT, input_token("x", "UINT8", (5_000,), bytes(5_000))) == {"ok": 20}
        probe.ask("begin", 60, "echo", PATIENT, TICK)
        assert probe.ask("end") == {"ok": 60}

    def test_questions_are_answered(self, probe: Probe) -> None:
        """State and readiness."""
        assert probe.ask("health")["state"] in ("serving", "degraded")
        assert probe.ask("ready", "echo") == {"ready": True}

    # --- refusals ------------------------------------------------------------------------------------------------------------

    def test_refusals_carry_code_and_field(self, probe: Probe, place: Path) -> None:
        """What the server says, and what the client finds before it sends."""
        (place / "large").write_bytes(bytes(2_500_000))
        tensor = input_token("x", "FP32", (3,), bytes(8))
        nan = input_token("x", "FP32", (1,), np.float32(np.nan).tobytes())

        assert_refused(probe.infer("nobody", TICK), Code.MODEL_NOT_FOUND, "model")
        assert_refused(probe.infer("echo", tensor), Code.SIZE_MISMATCH, "x")
        assert_refused(probe.infer("bad", WORKS, options="output=nothing"), Code.BAD_NAME, "outputs")
        assert_refused(probe.infer("bad", WORKS, options="version=9"), Code.VERSION_NOT_FOUND, "version")
        assert_refused(probe.infer("echo", nan, options="finite=1"), Code.NOT_FINITE, "x")
        assert_refused(probe.infer("echo", file_token("x", "UINT8", (2_500_000,), place / "large")), Code.TOO_LARGE, "inputs")
        assert_refused(probe.infer("echo", input_token("x", "FP32", (1,) * 9, bytes(4))), Code.BAD_SHAPE, "x")
        assert_refused(probe.infer("echo", TICK, options=f"budget_us={2**50}"), Code.BAD_PARAM, "budget_us")
        assert probe.infer("echo", TICK, options=PATIENT)["ok"]

    def test_a_header_or_payload_above_its_limit_is_too_large(self, probe: Probe) -> None:
        """The header before it is sent, the lane's limit by the server."""
        long = "n" * 70_000
        assert_refused(probe.infer("echo", TICK, options=f"client_request_id={long}"), Code.TOO_LARGE, "header")
        reply = probe.infer("bad", input_token("payload", "UINT8", (4_097,), bytes(4_097)))
        assert (reply["error"], reply["code"]) == ("RequestRefused", Code.TOO_LARGE)

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

    # --- keys of requests ----------------------------------------------------------------------------------------------------

    def test_only_the_newest_of_a_key_waits(self, probe: Probe, foreign_server: Server) -> None:
        """One is with the stages, the next waits, and the one after that takes its place."""
        written, leave = foreign_server.place / "written", foreign_server.place / "leave"
        options = f"{PATIENT};key=7;key_policy=LatestOnly"
        probe.ask("begin", 1, "pair", options, WORKS)
        wait_until(written.exists, "the call to be in a slot")
        probe.ask("begin", 2, "pair", options, WORKS)
        wait_until(lambda: statistics(foreign_server.control).get("ledger.codes.SUPERSEDED", 0), "the third")
        leave.touch()
        outcomes = probe.ask("outcomes")["outcomes"]
        leave.unlink()
        written.unlink()

        assert [outcome.get("error", "ok") for outcome in outcomes] == ["ok", "Superseded", "ok"]

    def test_an_ordered_key_goes_on_after_one_that_failed(self, probe: Probe) -> None:
        """Its followers are answered."""
        options = f"{PATIENT};key=7;key_policy=Ordered"
        for payload in (WORKS, RAISES, WORKS):
            probe.ask("begin", 1, "bad", options, payload)
        outcomes = probe.ask("outcomes")["outcomes"]

        assert [outcome.get("error", "ok") for outcome in outcomes] == ["ok", "RequestFailed", "ok"]

    def test_a_request_that_is_too_old_is_told_so(self, probe: Probe) -> None:
        """By the time at which its content was made."""
        late = probe.infer("echo", TICK, options=f"{PATIENT};born_us=1")

        assert (late["error"], late["code"], late["field"]) == ("DeadlineExceeded", Code.DEADLINE_EXCEEDED, "born_us")

    # --- models and functions ------------------------------------------------------------------------------------------------

    def test_a_function_that_raises_is_told_with_its_stage(self, probe: Probe) -> None:
        """By type and text."""
        failed = probe.infer("bad", RAISES)

        assert_failed(failed, Code.MODEL_FAILED)
        assert "ValueError" in failed["message"]
        assert "told to fail" in failed["message"]
        assert failed["stage"] == "decode"

    def test_one_request_that_fails_a_models_batch_fails_alone(self, probe: Probe, foreign_server: Server) -> None:
        """The others of it are answered."""
        data = input_token("data", "FP32", (1, 3), bytes(12))
        picks = {index: input_token("picks", "INT64", (1, 3), np.full(3, index, "<i8").tobytes()) for index in (0, 9)}
        probe.ask("begin", 7, "gather", PATIENT, data, picks[0])
        probe.ask("begin", 1, "gather", PATIENT, data, picks[9])
        probe.ask("begin", 7, "gather", PATIENT, data, picks[0])
        outcomes = probe.ask("outcomes")["outcomes"]

        assert [outcome["ok"] for outcome in outcomes] == [True] * 7 + [False] + [True] * 7
        assert_failed(outcomes[7], Code.MODEL_FAILED)

    def test_rows_that_no_batch_takes_are_refused(self, probe: Probe) -> None:
        """The others go on."""
        refused = probe.infer("rows", told(4), options=PATIENT)

        assert (refused["error"], refused["code"]) == ("RequestRefused", Code.BAD_SHAPE)
        assert probe.infer("rows", told(3), options=PATIENT)["ok"]

    def test_an_output_that_does_not_fit_is_told(self, probe: Probe) -> None:
        """By its code."""
        assert_failed(probe.infer("bad", OVERFLOWS), Code.OUTPUT_TOO_LARGE)

    def test_a_bad_picture_is_refused_and_a_large_one_by_its_header(self, probe: Probe) -> None:
        """One that is cut off, what is no picture, and one of more pixels than the lane takes."""

        def judge(path: Path) -> dict[str, object]:
            return probe.infer("photo", file_token("image", "ENCODED", (1,), path), options=PATIENT)

        assert judge(sorted(parts_path().glob("*.png"))[0])["ok"]
        for name, code in (("coffee_cut.jpg", Code.BAD_IMAGE), ("LICENSES.md", Code.BAD_IMAGE), ("flower.jpg", Code.TOO_LARGE)):
            refused = judge(IMAGES / name)
            assert (refused["error"], refused["code"]) == ("RequestRefused", code), name

    # --- stages that die -----------------------------------------------------------------------------------------------------

    def test_a_failure_of_the_server_is_told_apart(self, probe: Probe) -> None:
        """A stage that dies of a request which must not run twice."""
        assert_failed(probe.infer("bad", ABORTS), Code.STAGE_DIED)
        assert probe.infer("echo", TICK, options=PATIENT)["ok"]

    def test_a_request_that_kills_twice_is_quarantined(self, probe: Probe) -> None:
        """By its second death."""
        assert_failed(probe.infer("stuck", ABORTS, options=PATIENT), Code.QUARANTINED)

    def test_a_request_that_hangs_is_ended(self, probe: Probe) -> None:
        """When it may run once only, after one death, else after two; others do not notice."""
        probe.ask("begin", 1, "stuck", f"{PATIENT};idempotent=0", HANGS)
        assert probe.infer("echo", TICK, options=PATIENT)["ok"]
        assert_failed(probe.ask("outcomes")["outcomes"][0], Code.STAGE_DIED)
        assert_failed(probe.infer("stuck", HANGS, options=PATIENT), Code.QUARANTINED)

    def test_a_stage_killed_while_idle_costs_nothing_but_time(self, probe: Probe, foreign_server: Server) -> None:
        """Once, and twice in a row, the second time while it starts."""
        kill_stage(foreign_server, "echo.0")
        assert probe.infer("echo", TICK, options=PATIENT)["ok"]
        kill_stage(foreign_server, "echo.0")
        kill_stage(foreign_server, "echo.0")
        assert probe.infer("echo", TICK, options=PATIENT)["ok"]

    def test_what_a_killed_stage_had_taken_runs_again(self, probe: Probe, foreign_server: Server) -> None:
        """What it ran, and what was on its way to it; the reply tells how often."""
        written, leave = foreign_server.place / "written", foreign_server.place / "leave"
        probe.ask("begin", 3, "pair", PATIENT, WORKS)
        wait_until(written.exists, "the call to be in a slot")
        kill_stage(foreign_server, "pair.decode.0")
        leave.touch()
        outcomes = probe.ask("outcomes")["outcomes"]
        leave.unlink()
        written.unlink()

        assert [outcome["outputs"]["answer"]["hex"] for outcome in outcomes] == ["00"] * 3
        assert max(outcome["retries"] for outcome in outcomes) == 1

    def test_a_stopped_stage_is_replaced(self, probe: Probe, foreign_server: Server) -> None:
        """Its work is done by its successor."""
        pid = foreign_server.child("echo.0")
        os.kill(pid, signal.SIGSTOP)
        probe.ask("begin", 20, "echo", PATIENT, TICK)

        assert probe.ask("end") == {"ok": 20}
        assert foreign_server.child("echo.0") != pid

    def test_a_lane_that_cannot_start_is_unavailable(self, probe: Probe, foreign_server: Server) -> None:
        """What waits and what comes is told so, and so is who asks."""
        (foreign_server.place / "fragile").touch()
        os.kill(foreign_server.child("fragile.0"), signal.SIGKILL)
        wait_until(lambda: not probe.ask("ready", "fragile")["ready"], "the death")
        waited = probe.infer("fragile", WORKS, options=PATIENT)
        later = probe.infer("fragile", WORKS, options=PATIENT)

        assert {(reply["error"], reply["code"]) for reply in (waited, later)} == {("Busy", Code.MODEL_UNAVAILABLE)}
        assert probe.ask("ready", "fragile") == {"ready": False}
        assert probe.infer("echo", TICK, options=PATIENT)["ok"]
