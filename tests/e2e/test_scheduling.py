"""Who is served when, with real processes and a stage of known speed."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import configs
import numpy as np
import pytest
from places import StartServer
from raw_client import Answer, RawClient, statistics

from clients import Client, DeadlineExceeded, KeyPolicy, Pending, RequestRefused, Result, Superseded
from schemas.templates import RequestOptions, RequestTemplate, TensorForm
from schemas.tensors import DType

PATIENCE_S = 30.0


def body(number: int) -> dict[str, Any]:
    """Return inputs that carry *number*."""
    return {"payload": np.array([number], np.uint64).view(np.uint8)}


def test_of_a_latest_key_what_is_served_is_fresh(make_server: StartServer) -> None:
    """A producer at 20 times the service rate: each result is younger than a period and a service, every other is superseded."""
    run_us, period_s = 20_000, 0.001
    server = make_server(configs.timed(run_us=run_us, more="slots = 8")).start()
    served: list[tuple[float, float]] = []
    with Client(server.endpoint, timeout_s=PATIENCE_S) as client:
        calls: list[tuple[float, Pending[Result]]] = []
        began = time.monotonic()
        for number in range(600):
            while time.monotonic() < began + number * period_s:
                time.sleep(period_s / 10)
            born_us = time.monotonic_ns() // 1000
            call = client.submit("timed", body(number), key=3, key_policy=KeyPolicy.LATEST_ONLY, born_us=born_us)
            calls.append((born_us / 1e6, call))
        superseded = 0
        for born_s, call in calls:
            try:
                result = call.result()
            except Superseded:
                superseded += 1
                continue
            # When it was born, and how long it waited, in the broker and inside the lane.
            served.append((born_s, (result.backlog_us + result.timing[0][0]) / 1e6))
    stats = statistics(server.control)
    assert (len(served) + superseded, len(served) > 1) == (600, True)
    assert (stats["ledger.superseded"], stats["ledger.answered"], stats["ledger.balanced"]) == (superseded, len(served), True)
    # What would have waited inside the lane was born before its elder's service began; a producer that stalls makes some so.
    stale = sum(young < old + waited for (old, waited), (young, _) in pairwise(served))
    assert stale <= len(served) // 4
    waits_ms = [1e3 * waited for _, waited in served]
    print(f"{len(served)} served, {stale} stale; waited: median {np.median(waits_ms):.2f} ms, worst {max(waits_ms):.2f}")


def test_ordered_results_of_a_key_arrive_in_order_from_two_replicas(make_server: StartServer) -> None:
    """They finish in any order, and leave in order of arrival, small ones packed and large ones not; others overtake."""
    more = "slots = 16\nbacklog = 1000\ninside_us = 20_000\nreplicas = { decode = 2 }"
    server = make_server(configs.timed(run_us=500, more=more)).start()
    arrived: dict[int, list[int]] = {0: [], 1: [], 2: []}

    def note(answer: Answer, expected: tuple[int, int]) -> bool:
        key, number = expected
        arrived[key].append(number)
        return answer["echo"] == number.to_bytes(size_of(number), "little")

    def size_of(number: int) -> int:
        return 8 if number % 5 else 8_000

    with RawClient(server.endpoint, is_right=note, packed_replies=True) as client:
        for number in range(900):
            key, payload = number % 3, number.to_bytes(size_of(number), "little")
            policy = KeyPolicy.ORDERED if key else KeyPolicy.ONE_BY_ONE
            template = payload_template(len(payload), RequestOptions(key_policy=policy))
            header = client.header(template, () if template.frames else [payload], (key, number), key=key)
            client.socket.send_multipart([header, payload] if template.frames else [header])
        client.finish()
        client.assert_all_right(900)
    for key in (1, 2):
        assert arrived[key] == sorted(arrived[key])
    stats = statistics(server.control)
    assert (stats["lane.timed.slots_free"], stats["ledger.balanced"]) == (16, True)
    print(f"out of order without a policy: {sum(a > b for a, b in pairwise(arrived[0]))} of {len(arrived[0])}")


def payload_template(size: int, options: RequestOptions) -> RequestTemplate:
    """Return the template of requests of *size* bytes to the lane ``timed``."""
    return RequestTemplate("timed", [TensorForm("payload", DType.UINT8, (size,), size, size <= 4096)], options)


def test_a_budget_that_cannot_be_met_is_refused_early_until_the_lane_is_faster(make_server: StartServer) -> None:
    """A 20 ms stage: 5 ms are refused while they last, but one in 32, whose late run tells nothing new."""
    server = make_server(configs.timed(run_us=20_000, more="slots = 4")).start()
    with Client(server.endpoint, timeout_s=PATIENCE_S) as client:
        for number in range(20):
            client.infer("timed", body(number))
        early = 0
        for number in range(64):
            with pytest.raises(DeadlineExceeded) as failure:
                client.infer("timed", body(number), budget_us=5_000)
            early += "us at least" in str(failure.value)
        client.infer("timed", body(0), budget_us=5_000_000)
    stats = statistics(server.control)
    # The client's own timer may end some calls first when this machine is busy.
    assert early > 32
    assert stats["ledger.balanced"]


def test_a_request_that_is_too_old_is_not_begun(make_server: StartServer) -> None:
    """By the host's clock that both sides share."""
    server = make_server(configs.timed(run_us=100, more="max_age_us = 5_000_000")).start()
    with Client(server.endpoint, timeout_s=PATIENCE_S) as client:
        now_us = time.monotonic_ns() // 1000
        client.infer("timed", body(1), born_us=now_us)
        with pytest.raises(DeadlineExceeded, match=r"us old, lane.timed.max_age_us is 5000000") as failure:
            client.infer("timed", body(2), born_us=now_us - 5_000_001)
        assert failure.value.field == "born_us"
        with pytest.raises(RequestRefused, match="monotonic clock"):
            client.infer("timed", body(3), born_us=time.time_ns() // 1000)
