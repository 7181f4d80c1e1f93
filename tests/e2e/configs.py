"""Config files of the servers that tests start, as text."""

from __future__ import annotations

MAX_BODY_BYTES = 32_768


def digests(
    *, slots: int = 4, processes: str = '[["decode"], ["preprocess"], ["postprocess"]]', replicas: str = "{}", linger_ms: int = 0
) -> str:
    """Return a lane ``digests`` of three test stages that digest each byte of the payload."""
    body = f'{{ name = "body", dtype = "UINT8", shape = [-1], max_shape = [{MAX_BODY_BYTES}] }}'
    both = f'[{body}, {{ name = "digest", dtype = "UINT8", shape = [16] }}]'
    answer = f'[{{ name = "answer", dtype = "UINT8", shape = [-1], max_shape = [{MAX_BODY_BYTES + 16}] }}]'
    return f"""
[server]
drain_s = 10
[lane.digests]
slots = {slots}
max_encoded_bytes = {MAX_BODY_BYTES}
backlog = 4096
default_budget_us = 50_000_000
idempotent = true
processes = {processes}
replicas = {replicas}
[lane.digests.decode]
use = "stages_for_tests:decode"
outputs = {both}
[lane.digests.preprocess]
use = "stages_for_tests:preprocess"
outputs = {both}
[lane.digests.postprocess]
use = "stages_for_tests:postprocess"
linger_ms = {linger_ms}
outputs = {answer}
"""


def misbehaving(*, idempotent: bool, hang_limit_ms: int = 1000, drain_s: float = 10.0) -> str:
    """Return a lane ``bad`` of one process whose stage hangs or dies when a request says so, and an ``echo`` lane beside it."""
    return f"""
[server]
drain_s = {drain_s}
[lane.bad]
slots = 16
max_encoded_bytes = 4096
backlog = 4096
default_budget_us = 50_000_000
idempotent = {str(idempotent).lower()}
hang_limit_ms = {hang_limit_ms}
[lane.bad.decode]
use = "stages_for_tests:misbehave"
outputs = [{{ name = "echo", dtype = "UINT8", shape = [-1], max_shape = [4096] }}]
[lane.echo]
slots = 8
max_encoded_bytes = 4096
"""


def timed(*, run_us: int, more: str = "", server: str = "") -> str:
    """Return a lane ``timed`` of one process whose stage takes *run_us*; *more* are lines of its table."""
    return f"""
[server]
{server}
[lane.timed]
max_encoded_bytes = 16_384
default_budget_us = 50_000_000
idempotent = true
{more}
[lane.timed.decode]
use = "stages_for_tests:timed"
run_us = {run_us}
outputs = [{{ name = "echo", dtype = "UINT8", shape = [-1], max_shape = [16_384] }}]
"""


def waiting(place: str) -> str:
    """Return a lane ``pair``: its first process holds a slot until a file in *place* appears, its second answers from it."""
    return f"""
[server]
drain_s = 10
[lane.pair]
slots = 2
max_encoded_bytes = 65_536
default_budget_us = 50_000_000
hang_limit_ms = 60_000
processes = [["decode"], ["preprocess", "postprocess"]]
[lane.pair.decode]
use = "stages_for_tests:wait_for_leave"
place = "{place}"
outputs = [{{ name = "body", dtype = "UINT8", shape = [-1], max_shape = [65_536] }}]
[lane.pair.preprocess]
use = "stages_for_tests:copy"
outputs = [{{ name = "answer", dtype = "UINT8", shape = [-1], max_shape = [65_536] }}]
"""
