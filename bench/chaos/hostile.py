"""Scenarios of a hostile wire: damaged messages from another client, and TCP connections that misbehave."""

from __future__ import annotations

import random
import time

from bench.chaos.mutate import mutate
from bench.chaos.proxy import Proxy
from bench.chaos.rig import Rig
from bench.chaos.supply import make_cases
from bench.chaos.wire_peer import WirePeer

BUDGET_US = 1_000_000
# Each part on a connection of its own, so that what one has said of itself does not last.
PART = 250
TOXICS = ("slice", "delay", "reset", "half_open")


def corrupt_message(rig: Rig) -> None:
    """Another client sends damaged messages, as fast as it can read what comes back; the good ones beside it notice nothing."""
    rig.start()
    numbers = random.Random(rig.setting.seed)
    cases = make_cases(rig.setting.supply, rig.setting.seed - 1)
    sent = answered = 0
    while rig.goes_on:
        peer = WirePeer(rig.server.endpoint)
        for number in range(1, PART + 1):
            peer.socket.send_multipart(mutate(numbers, peer.frames_of(cases.next(), number, BUDGET_US)))
            sent += 1
            if number % 25 == 0:
                answered += _drain(peer, 5)
        answered += _drain(peer, 100)
        peer.close()
    rig.facts |= {"damaged_sent": sent, "damaged_answered": answered, "broker_deaths": len(rig.server.events("broker_died"))}
    rig.facts["codec_faults"] = len(rig.server.events("codec_fault"))
    rig.finish()


def _drain(peer: WirePeer, wait_ms: int) -> int:
    """Read what is there without looking at it; return how many messages."""
    count = 0
    while peer.socket.poll(wait_ms if count == 0 else 0):
        peer.socket.recv_multipart()
        count += 1
    return count


def toxics(rig: Rig) -> None:
    """The checker speaks TCP through a proxy that slices, delays, resets, and holds connections half-open, one after the other.

    A connection that is reset ends the requests on it; whatever arrives is whole, right and once.
    """
    server = rig.serve(endpoint="tcp://127.0.0.1:0")
    host, _, port = server.endpoint.removeprefix("tcp://").rpartition(":")
    proxy = Proxy((host, int(port)))
    try:
        rig.server.endpoint = f"tcp://127.0.0.1:{proxy.port}"
        rig.add_checker(rate=rig.setting.rate)
        rig.begin()
        resets = 0
        while rig.goes_on:
            for toxic in TOXICS:
                rig.say(f"toxic: {toxic}")
                resets += _suffer(rig, proxy, toxic)
        rig.facts |= {"connections": proxy.connections, "resets": resets}
        rig.finish()
    finally:
        proxy.close()


def _suffer(rig: Rig, proxy: Proxy, toxic: str) -> int:
    """Let the connection suffer for a while; return how often it was ended."""
    if toxic != "reset":
        proxy.mode = toxic
    time.sleep(min(1.5, rig.setting.seconds / 8))
    proxy.mode = "pass"
    if toxic not in ("reset", "half_open"):
        return 0
    at_ns = time.monotonic_ns()
    proxy.reset()
    # What was on the connection has nobody to come to; it may still have been accepted, and is then undeliverable.
    rig.order("pause")
    rig.order("end_epoch")
    rig.order(f"mark {at_ns}")
    rig.order("resume")
    time.sleep(0.2)
    return 1
