"""The same answers in every cut: fused, in two processes, one process a stage; bit for bit those of a direct run."""

from __future__ import annotations

import re

import pytest
from demo_load import DemoLoad, parts, ticks
from places import StartServer
from raw_client import statistics
from server import ROOT

CUTS = {
    "fused": '[["decode", "preprocess", "infer", "postprocess"]]',
    "two processes": '[["decode", "preprocess"], ["infer", "postprocess"]]',
    "one process a stage": '[["decode"], ["preprocess"], ["infer"], ["postprocess"]]',
}
REQUESTS = 6000


def demo_config(cut: str) -> str:
    """Return the demo's config with both lanes cut like this, and room for many requests at once."""
    text = (ROOT / "stages" / "demo" / "demo.toml").read_text()
    text = re.sub(r"^processes = .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r'^model = "(.*)"\n', rf'model = "{ROOT}/stages/demo/\1"\nprocesses = {cut}\n', text, flags=re.MULTILINE)
    return text.replace("default_budget_us = 1_000_000", "default_budget_us = 5_000_000")


@pytest.mark.parametrize("cut", CUTS)
def test_every_answer_equals_a_direct_run(make_server: StartServer, cut: str) -> None:
    """Ticks one by one and packed, photos among them, few and many outstanding: batches differ, answers do not."""
    server = make_server(demo_config(CUTS[cut])).start()
    sent = 0
    largest: dict[int, int] = {}
    for outstanding, packed in ((1, False), (7, False), (400, False), (400, True)):
        load = DemoLoad(server.endpoint, seed=outstanding, outstanding=outstanding, ticks_per_photo=40, packed=packed)
        load.run_answers(REQUESTS // 4 if outstanding > 1 else REQUESTS // 40)
        load.finish()
        load.close()
        sent += load.sent
        largest[outstanding] = load.client.tally.largest_batch
    stats = statistics(server.control)

    assert (stats["ledger.received"], stats["ledger.answered"], stats["ledger.balanced"]) == (sent, sent, True)
    assert largest[1] == 1 < largest[400], "batches did not differ: this test proves nothing"
    assert server.stop() == 0
    print(f"{cut}: {sent} answers equal")


def test_every_photo_and_every_tick_is_among_them(make_server: StartServer) -> None:
    """Each of the demo's inputs once, in one go, in its own cut."""
    server = make_server("demo").start()
    load = DemoLoad(server.endpoint, seed=1)
    for at in range(len(parts()[0])):
        load.send(load.photo(at))
    for at in range(len(ticks()[0])):
        load.send(load.tick(at))

    load.finish()
    load.close()
    assert server.stop() == 0
