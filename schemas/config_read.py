"""Tables of the config file -> the values of config_fields.py, each checked alone. What two fields say together: config.py."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from schemas.config_curve import CurveConfig
from schemas.config_endpoint import default_control, resolve_endpoint
from schemas.config_fields import LaneConfig, ServerConfig
from schemas.config_gpu import GpuConfig
from schemas.config_leases import LeaseConfig
from schemas.config_rules import NAME, Spot, whole
from schemas.config_stage import MAX_OUTPUTS, PARAMS, STAGES, OutputConfig, StageConfig, lane_stages, use_rule
from schemas.tensors import DType

STAGE_TABLES = ("decode", "preprocess", "postprocess")
MAX_REPLICAS = 64


def read_server(value: object, *, base: Path, spot: Spot, has_keys: bool) -> ServerConfig:
    """Return the [server] table; endpoints are absolute afterwards. With keys, clients may come from other machines."""
    values = _read_fields(ServerConfig, spot.table(value), spot)
    insecure = values.get("insecure", False)
    endpoint_spot, control_spot = spot.at("endpoint"), spot.at("control")
    text = values.get("endpoint", ServerConfig().endpoint)
    endpoint = values["endpoint"] = resolve_endpoint(text, base=base, may_be_open=insecure or has_keys, spot=endpoint_spot)
    if "control" in values:
        values["control"] = resolve_endpoint(values["control"], base=base, may_be_open=insecure, spot=control_spot)
    else:
        values["control"] = default_control(endpoint, spot=endpoint_spot)
    return ServerConfig(**values)


def read_curve(value: object, *, base: Path, spot: Spot) -> CurveConfig:
    """Return the [curve] table; both paths are absolute and exist. What is in them is read by the broker alone."""
    values = _read_fields(CurveConfig, spot.table(value), spot)
    for key, make in (("secret_key", "slotline keys server --out DIR"), ("clients", "slotline keys client NAME --out DIR")):
        if key not in values:
            raise spot.at(key).error(f"missing; [curve] needs secret_key and clients: make it with `{make}`")
        path = values[key] = _absolute(values[key], base)
        if not (path.is_dir() if key == "clients" else path.is_file()):
            what = "a directory of public keys" if key == "clients" else "a secret key file"
            raise spot.at(key).wrong(path, f"{what}; there is none: correct the path, or make it with `{make}`")
    return CurveConfig(**values)


def read_leases(value: object, *, spot: Spot) -> LeaseConfig:
    """Return the [leases] table."""
    return LeaseConfig(**_read_fields(LeaseConfig, spot.table(value), spot))


def read_lane(name: str, value: object, *, base: Path, spot: Spot) -> LaneConfig:
    """Return the [lane.NAME] table with its stage tables; the model's path is absolute and the file exists."""
    spot.accept(NAME, name)
    table = spot.table(value)
    values = _read_fields(LaneConfig, table, spot, also=(*STAGE_TABLES, "gpu"))
    values["gpu"] = GpuConfig(**_read_fields(GpuConfig, spot.at("gpu").table(table.get("gpu", {})), spot.at("gpu")))
    values["model"] = _model_path(values.get("model"), base, spot.at("model"))
    for stage in STAGE_TABLES:
        values[stage] = _read_stage(stage, table.get(stage), spot.at(stage))
    stages = lane_stages(values["model"] is not None)
    values["processes"] = _read_processes(values.get("processes", [list(stages)]), stages, spot.at("processes"))
    values["replicas"] = _read_replicas(values.get("replicas", {}), values["processes"], spot.at("replicas"))
    values.setdefault("idempotent", not any(values[stage].is_user_function for stage in STAGE_TABLES))
    return LaneConfig(name=name, **values)


def _read_fields(kind: type[Any], table: Mapping[str, object], spot: Spot, *, also: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of *kind* that *table* names, each accepted by its rule; *also* are keys read elsewhere."""
    rules = {item.name: item.metadata["rule"] for item in fields(kind) if "rule" in item.metadata}
    spot.check_known(table, (*rules, *also))
    return {key: spot.at(key).accept(rules[key], value) for key, value in table.items() if key in rules}


def _model_path(text: str | None, base: Path, spot: Spot) -> Path | None:
    if text is None:
        return None
    path = _absolute(text, base)
    if not path.is_file():
        raise spot.wrong(
            text, f"an ONNX file; there is none at {path}: correct the path, it starts at the config file's directory"
        )
    return path


def _absolute(text: str, base: Path) -> Path:
    return Path(os.path.abspath(base / Path(text).expanduser()))


def _read_stage(stage: str, value: object, spot: Spot) -> StageConfig:
    """Return the table of *stage*; *value* is None when the file has none."""
    if value is None:
        return StageConfig("tensor" if stage == "decode" else "none")
    table = spot.table(value)
    use = str(spot.at("use").accept(use_rule(stage), table.get("use", "image" if stage == "decode" else "none")))
    config = StageConfig(use, _read_params(stage, use, table, spot), _read_outputs(table.get("outputs"), spot.at("outputs")))
    if config.is_user_function and stage != "postprocess" and not config.outputs:
        raise spot.at("outputs").error(
            'missing; say what the function writes: outputs = [{ name = "x", dtype = "FP32", shape = [1, 8] }]'
        )
    if not config.is_user_function and config.outputs:
        raise spot.at("outputs").error(f'not used here; "{use}" knows its outputs, only a user\'s function declares them')
    return config


def _read_params(stage: str, use: str, table: Mapping[str, object], spot: Spot) -> Mapping[str, object]:
    """Return the keys beside ``use`` and ``outputs``: a user's function gets all of them, a built-in only those it knows."""
    others = {key: value for key, value in table.items() if key not in ("use", "outputs")}
    if ":" in use:
        return others
    known = PARAMS.get((stage, use), {})
    spot.check_known(others, known if "use" in table else ("use", *known))
    return {key: spot.at(key).accept(rule, others.get(key, default)) for key, (rule, default, _) in known.items()}


def _read_outputs(value: object, spot: Spot) -> tuple[OutputConfig, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_OUTPUTS:
        raise spot.wrong(value, f"a list of 1 to {MAX_OUTPUTS} tables")
    outputs = tuple(_read_output(item, spot.at(str(index))) for index, item in enumerate(value))
    names = [output.name for output in outputs]
    if len(set(names)) != len(names):
        raise spot.wrong(", ".join(names), "names that differ")
    return outputs


def _read_output(value: object, spot: Spot) -> OutputConfig:
    """Return one declared output; its max_shape is always set afterwards."""
    values = _read_fields(OutputConfig, spot.table(value), spot)
    for key in ("name", "dtype", "shape"):
        if key not in values:
            raise spot.at(key).error("missing; an output has name, dtype and shape")
    values["dtype"] = dtype = DType[values["dtype"]]
    shape = values["shape"]
    if -1 in shape and "max_shape" not in values:
        raise spot.at("max_shape").error(f"missing; shape {list(shape)} has -1, so say the largest shape")
    largest = values.setdefault("max_shape", shape)
    if 0 in shape:
        raise spot.at("shape").wrong(list(shape), "sizes from 1, or -1")
    if len(largest) != len(shape) or any(dim not in (-1, most) for dim, most in zip(shape, largest, strict=True)):
        raise spot.at("max_shape").wrong(list(largest), f"{list(shape)} with each -1 replaced by its largest size")
    if (dtype is DType.BYTES) != ("max_bytes" in values):
        raise spot.at("max_bytes").error("needed for dtype BYTES, and for no other")
    return OutputConfig(**values)


def _read_processes(value: object, stages: tuple[str, ...], spot: Spot) -> tuple[tuple[str, ...], ...]:
    """Return the cut: *stages* in order, none left out, none twice, each process at least one."""
    expected = f"lists that make up {list(stages)} in this order"
    if not isinstance(value, list) or not all(isinstance(process, list) and process for process in value):
        raise spot.wrong(value, expected)
    if [stage for process in value for stage in process] != list(stages):
        raise spot.wrong(value, expected)
    return tuple(tuple(process) for process in value)


def _read_replicas(value: object, processes: tuple[tuple[str, ...], ...], spot: Spot) -> Mapping[str, int]:
    """Return the counts as written; two stages of one process cannot have two counts."""
    table = spot.table(value)
    spot.check_known(table, [stage for stage in STAGES if any(stage in process for process in processes)])
    count = whole(1, MAX_REPLICAS)
    counts = {stage: int(str(spot.at(stage).accept(count, number))) for stage, number in table.items()}
    for process in processes:
        if len({counts[stage] for stage in process if stage in counts}) > 1:
            raise spot.wrong(counts, f"one count for {list(process)}: they share a process")
    return counts
