"""Learn answers that nobody knows: send each input of a pool once, before any fault, and keep what comes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from bench.chaos.cases import Case, Expected, guessed_pool, pool_to_json
from bench.chaos.place import ChaosServer, wait_nothing_left
from bench.chaos.wire_peer import WirePeer, metadata
from schemas.config import load_config
from schemas.status import ConfigError

PROBE_S = 60.0
BUDGET_US = 30_000_000


def probe(config: Path, place: Path, seed: int) -> Path:
    """Start *config*'s server once and return the file with the pool of all its lanes' requests and first answers.

    Raises:
        ConfigError: it does not start, or not one guessed input of a lane is answered with a result.
    """
    lanes = [lane.name for lane in load_config(config).lanes]
    server = ChaosServer(place, config)
    try:
        server.start()
        pool = [case for lane in lanes for case in _answered(server, lane, seed)]
        server.terminate()
        server.wait()
    finally:
        server.destroy()
    wait_nothing_left(place)
    file = place / "pool.json"
    file.write_text(json.dumps(pool_to_json(pool)), encoding="utf-8")
    return file


def _answered(server: ChaosServer, lane: str, seed: int) -> list[Case]:
    """Return the pool of one lane with its answers; what gets an error is left out."""
    asked = guessed_pool(lane, metadata(server.endpoint, lane), seed)
    peer = WirePeer(server.endpoint)
    try:
        for number, case in enumerate(asked, 1):
            peer.socket.send_multipart(peer.frames_of(case, number, BUDGET_US))
        answers = _collect(peer, len(asked))
    finally:
        peer.close()
    found = [
        replace(case, expected=answers[number]) for number, case in enumerate(asked, 1) if not isinstance(answers[number], str)
    ]
    if len(found) < 2:
        reasons = sorted({answer for answer in answers.values() if isinstance(answer, str)})
        raise ConfigError(f"lane {lane}: no guessed input is answered ({', '.join(reasons)}): chaos cannot judge this lane")
    return found


def _collect(peer: WirePeer, count: int) -> dict[int, Expected]:
    answers: dict[int, Expected] = {}
    end = time.monotonic() + PROBE_S
    while len(answers) < count and time.monotonic() < end:
        peer.socket.poll(100)
        answers |= {number: outcome for number, outcome in peer.finals() if outcome is not None}
    if len(answers) < count:
        raise ConfigError(f"only {len(answers)} of {count} guessed inputs were answered within {PROBE_S:g} s")
    return answers
