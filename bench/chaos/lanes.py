"""Configs of the servers that are put to the test: the built-in lane, the demo's lanes in a cut, a lane with a timed model."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

from stages.demo import config_path

BUILT_IN = "chaos"
DEMO = "demo"
MAX_PAYLOAD_BYTES = 32_768
CUTS: Mapping[str, list[list[str]]] = {
    "fused": [["decode", "preprocess", "infer", "postprocess"]],
    "stages": [["decode"], ["preprocess"], ["infer"], ["postprocess"]],
}


def built_in(cut: str, *, slots: int = 16) -> str:
    """Return a lane ``chaos`` of three functions that digest each byte; few slots, so that each has many lives."""
    processes = [[stage for stage in part if stage != "infer"] for part in CUTS[cut]]
    body = {"name": "body", "dtype": "UINT8", "shape": [-1], "max_shape": [MAX_PAYLOAD_BYTES]}
    digest = {"name": "digest", "dtype": "UINT8", "shape": [16]}
    answer = {"name": "answer", "dtype": "UINT8", "shape": [-1], "max_shape": [MAX_PAYLOAD_BYTES + 16]}
    lane = {
        "slots": slots,
        "max_encoded_bytes": MAX_PAYLOAD_BYTES,
        "backlog": 4096,
        "default_budget_us": 50_000_000,
        "idempotent": True,
        "processes": [part for part in processes if part],
        "decode": {"use": "bench.chaos.functions:decode", "outputs": [body, digest]},
        "preprocess": {"use": "bench.chaos.functions:preprocess", "outputs": [body, digest]},
        "postprocess": {"use": "bench.chaos.functions:postprocess", "outputs": [answer]},
    }
    return to_toml({"lane": {BUILT_IN: lane}})


def demo(cut: str) -> str:
    """Return the demo's two lanes, both in the cut *cut*."""
    lanes = _demo_lanes()
    for lane in lanes.values():
        lane["processes"] = CUTS[cut]
    return to_toml({"lane": lanes})


def mixed(cut: str) -> str:
    """Return the demo's two lanes and the built-in one in one server."""
    lanes = _demo_lanes() | tomllib.loads(built_in(cut))["lane"]
    for name in ("qc", "ticks"):
        lanes[name]["processes"] = CUTS[cut]
    return to_toml({"lane": lanes})


def timed() -> str:
    """Return the demo's ``ticks`` with batches of at most 8 and the default backlog, the model in a process of its own.

    How long a batch takes is set by a fault (``in_call:sleep2ms:1``).
    """
    ticks = _demo_lanes()["ticks"]
    ticks |= {"max_batch_size": 8, "slots": 64, "backlog": 256}
    return to_toml({"lane": {"ticks": ticks}})


def too_large() -> str:
    """Return a lane whose slots take 4 TiB, more than any machine has."""
    return to_toml({"lane": {BUILT_IN: {"slots": 65_536, "max_encoded_bytes": 1 << 26}}})


def _demo_lanes() -> dict[str, Any]:
    lanes: dict[str, Any] = tomllib.loads(config_path().read_text(encoding="utf-8"))["lane"]
    for lane in lanes.values():
        lane["model"] = str(config_path().parent / lane["model"])
    return lanes


def to_toml(table: Mapping[str, Any], path: str = "") -> str:
    """Return *table* as TOML: numbers, texts, truths, lists, inline tables in lists, and tables."""
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"[{path}]"] * bool(path and plain) + [f"{name} = {_value(value)}" for name, value in plain.items()]
    inner = [to_toml(value, f"{path}.{name}" if path else name) for name, value in table.items() if isinstance(value, Mapping)]
    return "\n".join(lines) + "\n" * bool(lines) + "".join(inner)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_value(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)
