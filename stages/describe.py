"""Find out what a configuration comes to: load each model once, check that libraries and functions are there, make the plan.

Runs in a process of its own at start, so that the supervisor never imports a model's runtime
and a broken file is told in one line.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, NoReturn

from schemas.config import Config, LaneConfig, LeaseConfig, load_config
from schemas.leases import RegionForm
from schemas.plan import DevicePlan, LanePlan, Plan
from schemas.status import ConfigError, DeviceError

from .batch_effects import batch_effects
from .detect import Detector
from .image_libraries import load_decoders
from .lane_plan import ModelSpec, build_plan
from .model_files import look_at
from .postprocess import load_function, prefer_modules_in
from .steps import make_engine


def describe(config: Config) -> Plan:
    """Return the plan of *config*.

    Raises:
        ConfigError: a model, a library or a function is missing or does not fit; one line with the cure.
        DeviceError: a lane demands a GPU that cannot be used.
    """
    prefer_modules_in(config.base)
    # First, because what is wrong with the packages of a GPU may keep a model from loading too.
    detector = Detector()
    devices = [detector.choose(lane) for lane in config.lanes]
    models = {lane.name: _spec(lane) for lane in config.lanes if lane.model is not None}
    for lane in config.lanes:
        _check_code(lane)
    on_gpu = {lane.name for lane, device in zip(config.lanes, devices, strict=True) if device and device.kind == "cuda"}
    plan = build_plan(config, models, on_gpu)
    lanes = (dataclasses.replace(lane, device=device) for lane, device in zip(plan.lanes, devices, strict=True))
    return dataclasses.replace(plan, lanes=tuple(lanes))


def write_plan(path: Path, endpoint: str, descriptor: int) -> NoReturn:
    """Write the plan of a config file, or the line that says why there is none, as JSON to *descriptor*, and end this process.

    It ends at once: a user's module may have left threads behind that would keep it.
    """
    try:
        answer: dict[str, Any] = {"plan": dataclasses.asdict(describe(load_config(path, endpoint)))}
    except ConfigError as error:
        answer = {"error": str(error), "is_device": isinstance(error, DeviceError)}
    with open(descriptor, "wb") as answers:
        answers.write(json.dumps(answer).encode() + b"\n")
    os._exit(0)


def _spec(lane: LaneConfig) -> ModelSpec:
    # On the CPU, wherever it will run: this process shall have nothing to do with a GPU.
    engine = make_engine(lane, lane.max_batch_size, "cpu")
    assert lane.model is not None
    # One row at a time has no company.
    effects = batch_effects(engine, lane.max_batch_size) if lane.max_batch_size > 1 else {}
    found = None if effects is None else tuple(effects.items())
    return ModelSpec(engine.inputs, engine.outputs, look_at(lane.model), found)


def _check_code(lane: LaneConfig) -> None:
    """Import what the lane's stages will import."""
    if lane.decode.use == "image":
        load_decoders()
    for stage in ("decode", "preprocess", "postprocess"):
        setting = lane.stage(stage)
        if setting.is_user_function:
            load_function(setting.use, key=f"lane.{lane.name}.{stage}.use", config=setting.params)


def summary(plan: LanePlan) -> dict[str, object]:
    """Return what ``check`` tells about a lane: bytes per slot and in all, the links, the cut, the device."""
    per_slot = {region.name: region.stride for region in plan.regions}
    return {
        "lane": plan.name,
        "slots": plan.slots,
        "bytes_per_slot": per_slot,
        "arena_bytes": plan.arena_bytes,
        "inputs": [_spec_text(s.name, s.dtype.name, s.shape) for s in plan.inputs] or ["any tensors"],
        "outputs": [_spec_text(s.name, s.dtype.name, s.shape) for s in plan.outputs] or ["the inputs"],
        "stages": [f"{step.stage} ({step.use})" for step in plan.steps],
        "max_batch_size": plan.max_batch_size,
        **(_device(plan.device) if plan.device else {}),
        "batch_dependent": None if plan.batch_effects is None else dict(plan.batch_effects),
    }


def _device(device: DevicePlan) -> dict[str, object]:
    told: dict[str, object] = {"device": device.kind, "device_reason": device.reason}
    return told | ({"device_about": device.about} if device.about else {})


def check_all(plan: Plan, leases: LeaseConfig) -> dict[str, Any]:
    """Return what ``check`` prints: every lane, the processes, and what is lent to clients."""
    lease_bytes = leases.count * RegionForm(leases.frames, leases.frame_bytes).region_bytes
    return {
        "lanes": [summary(lane) for lane in plan.lanes],
        "processes": [
            {"name": process.name, "lanes": [plan.lanes[i].name for i in process.lanes], "replicas": process.replicas}
            for process in plan.processes
        ],
        "leases": {"count": leases.count, "frames": leases.frames, "frame_bytes": leases.frame_bytes, "bytes": lease_bytes},
        "memory_bytes": sum(lane.arena_bytes for lane in plan.lanes) + lease_bytes,
    }


def check_text(found: dict[str, Any]) -> str:
    """Return the same for people."""
    lines = ["\n".join(f"{key:>16}  {_value_text(key, value)}" for key, value in lane.items()) + "\n" for lane in found["lanes"]]
    lines += [f"process {p['name']} x {p['replicas']}, lanes {', '.join(p['lanes'])}" for p in found["processes"]]
    leases = found["leases"]
    if leases["count"]:
        size = f"{leases['bytes'] / 2**20:.1f} MiB"
        lines.append(f"leases {leases['count']} x {leases['frames']} frames of {leases['frame_bytes']} bytes: {size}")
    return "\n".join([*lines, f"shared memory {found['memory_bytes'] / 2**20:.1f} MiB"])


def _value_text(key: str, value: Any) -> str:
    """Return one value for people: which answers depend on who else asks is a sentence."""
    if key != "batch_dependent":
        return str(value)
    if value is None:
        return "not known: the model's shapes are open, and it does not run with ours"
    outputs = ", ".join(f"{name} (by up to {most:.2g} of its largest value)" for name, most in value.items())
    return f"yes: {outputs}; max_batch_size = 1 ends it" if outputs else "no"


def _spec_text(name: str, dtype: str, shape: tuple[int, ...]) -> str:
    return f"{name} {dtype} {list(shape)}"
