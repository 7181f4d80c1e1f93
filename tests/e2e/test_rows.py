"""Each request gets exactly its rows, whatever shares a batch, a slot or a message with it."""

from __future__ import annotations

import random

import pytest
from places import StartServer
from raw_client import RawClient, statistics

from schemas.status import Flag
from schemas.templates import RequestTemplate, TensorForm
from schemas.tensors import DType

CONFIG = """
[server]
max_in_flight = 4096
[lane.rows]
slots = 32
max_encoded_bytes = 4096
max_rows = 8
max_batch_size = 8
backlog = 8192
default_budget_us = 50_000_000
"""
CLIENTS = 8
WIDTH = 16
TEMPLATES = {
    rows: RequestTemplate("rows", [TensorForm("x", DType.UINT8, (rows, WIDTH), rows * WIDTH, True)]) for rows in range(1, 9)
}


def run(server_endpoint: str, control: str, requests: int, *, packed: bool) -> None:
    """Send *requests* of 1 to 8 random rows from eight clients, each with at most 64 in flight."""
    chance = random.Random(requests + packed)
    clients = [RawClient(server_endpoint, packed_replies=packed, is_right=lambda a, e: a["x"] == e) for _ in range(CLIENTS)]
    sent = dict.fromkeys(range(CLIENTS), 0)
    while sum(sent.values()) < requests:
        for index, client in enumerate(clients):
            count = min(64 - len(client.pending), requests - sum(sent.values()))
            made = []
            for _ in range(count):
                rows = chance.randint(1, 8)
                content = chance.randbytes(rows * WIDTH)
                made.append((TEMPLATES[rows], [content], content))
            sent[index] += count
            if packed and made:
                client.send_packed(made)
            for template, inline, expected in () if packed else made:
                client.socket.send(client.header(template, inline, expected, flags=Flag.IDEMPOTENT))
            client.receive(0.001)
    for index, client in enumerate(clients):
        client.finish()
        client.assert_all_right(sent[index])
        client.close()
    stats = statistics(control)
    assert (stats["ledger.answered"], stats["ledger.balanced"]) == (requests, True)
    assert stats["lane.rows.slots_free"] == stats["lane.rows.slots"]


@pytest.mark.parametrize("packed", [False, True], ids=["single", "packed"])
def test_each_request_gets_exactly_its_rows(make_server: StartServer, packed: bool) -> None:
    """The short form: 4,000 requests."""
    server = make_server(CONFIG).start()
    run(server.endpoint, server.control, 4_000, packed=packed)


@pytest.mark.chaos
@pytest.mark.parametrize("packed", [False, True], ids=["single", "packed"])
def test_each_of_a_hundred_thousand_requests_gets_exactly_its_rows(make_server: StartServer, packed: bool) -> None:
    """The long form."""
    server = make_server(CONFIG).start()
    run(server.endpoint, server.control, 100_000, packed=packed)
