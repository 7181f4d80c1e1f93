"""The config file: read once at start, checked, frozen. The supervisor reads it too, so no zmq and no numpy below here.

Values and the reason of each default are in config_fields.py, reading in config_read.py; this module is what others import.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from schemas.config_curve import CurveConfig
from schemas.config_fields import Config, LaneConfig, ServerConfig
from schemas.config_gpu import GpuConfig
from schemas.config_leases import LeaseConfig
from schemas.config_read import read_curve, read_lane, read_leases, read_server
from schemas.config_rules import Spot
from schemas.config_stage import MODEL_STAGE, PARAMS, STAGES, USES, OutputConfig, StageConfig
from schemas.status import ConfigError

__all__ = [
    "MODEL_STAGE",
    "STAGES",
    "Config",
    "ConfigError",
    "CurveConfig",
    "GpuConfig",
    "LaneConfig",
    "LeaseConfig",
    "OutputConfig",
    "ServerConfig",
    "StageConfig",
    "field_table",
    "load_config",
    "parse_config",
]

# A lane's number travels in 16 bits of a hop; far below, because each lane has at least one process.
MAX_LANES = 256


def load_config(path: Path, endpoint: str = "", control: str = "") -> Config:
    """Return the config in the file *path*; its relative paths start at its directory.

    Args:
        endpoint: takes the place of the file's ``server.endpoint`` when given; ``server.control`` then follows it,
        control: unless it is given too.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong; one line with the cure.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: is no file: name a readable config file, or run `slotline serve demo`")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise ConfigError(f"{path}: {reason}: name a readable config file, or run `slotline serve demo`") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8") from None
    return parse_config(text, base=path.absolute().parent, source=str(path), endpoint=endpoint, control=control)


def parse_config(text: str, *, base: Path, source: str, endpoint: str = "", control: str = "") -> Config:
    """Return the config that *text* (TOML) says; *source* names it in messages.

    Raises:
        ConfigError: one line with the file, the field, its value and what is allowed.
    """
    spot = Spot(source)
    try:
        tables: dict[str, object] = tomllib.loads(text)
    except RecursionError:
        raise spot.error("not TOML that anybody wrote: brackets nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise spot.error(f"not TOML: {' '.join(str(error).split())}") from None
    spot.check_known(tables, ("server", "curve", "leases", "lane"))
    server_table = tables.get("server", {})
    if endpoint and isinstance(server_table, dict):
        others = {key: value for key, value in server_table.items() if key != "control"}
        server_table = {**others, "endpoint": endpoint, **({"control": control} if control else {})}
    curve = read_curve(tables["curve"], base=base, spot=spot.at("curve")) if "curve" in tables else None
    server = read_server(server_table, base=base, spot=spot.at("server"), has_keys=curve is not None)
    leases = read_leases(tables.get("leases", {}), spot=spot.at("leases"))
    lane_tables = spot.at("lane").table(tables.get("lane", {}))
    if not 1 <= len(lane_tables) <= MAX_LANES:
        raise spot.error(f"has {len(lane_tables)} lanes; expected 1 to {MAX_LANES}, each a table such as [lane.qc]")
    lanes = tuple(read_lane(name, value, base=base, spot=spot.at("lane").at(name)) for name, value in lane_tables.items())
    _check_together(server, lanes, spot)
    if curve is not None and server.control is not None and server.control.startswith("tcp:"):
        raise spot.at("server").at("control").wrong(server.control, "ipc://PATH: it asks for no keys, file rights guard it")
    return Config(server=server, lanes=lanes, source=source, base=base, curve=curve, leases=leases)


def _check_together(server: ServerConfig, lanes: tuple[LaneConfig, ...], spot: Spot) -> None:
    """Raise ConfigError for values that are right alone and wrong together."""
    here = spot.at("server")
    if server.control == server.endpoint:
        raise here.at("control").wrong(server.control, "another endpoint than server.endpoint")
    if server.control is not None and server.control.startswith("tcp:") and server.control.endswith((":*", ":0")):
        raise here.at("control").wrong(server.control, "a port that clients know: one from 1 to 65535")
    if server.heartbeat_timeout_ms <= server.heartbeat_ms:
        raise here.at("heartbeat_timeout_ms").wrong(
            server.heartbeat_timeout_ms, f"more than server.heartbeat_ms = {server.heartbeat_ms}"
        )
    for lane in lanes:
        _check_lane_in_server(lane, server, spot.at("lane").at(lane.name))
    _check_worker_groups(lanes, spot.at("lane"))


def _check_lane_in_server(lane: LaneConfig, server: ServerConfig, spot: Spot) -> None:
    if lane.default_budget_us > server.max_budget_us:
        raise spot.at("default_budget_us").wrong(lane.default_budget_us, f"at most server.max_budget_us = {server.max_budget_us}")
    if lane.max_age_us and not server.endpoint.startswith("ipc://"):
        raise spot.at("max_age_us").wrong(lane.max_age_us, "0 with a TCP endpoint: a sender elsewhere has another clock")
    if lane.max_encoded_bytes > server.max_message_bytes:
        raise spot.at("max_encoded_bytes").wrong(
            lane.max_encoded_bytes, f"at most server.max_message_bytes = {server.max_message_bytes}: raise that too"
        )


def _check_worker_groups(lanes: tuple[LaneConfig, ...], spot: Spot) -> None:
    """Raise ConfigError when lanes of one group ask for different processes."""
    first_of: dict[str, LaneConfig] = {}
    for lane in lanes:
        if lane.workers is None:
            continue
        first = first_of.setdefault(lane.workers, lane)
        if (lane.processes, lane.process_replicas) != (first.processes, first.process_replicas):
            raise (
                spot.at(lane.name)
                .at("workers")
                .wrong(lane.workers, f"the same processes and replicas as lane.{first.name}, which these workers serve too")
            )


def field_table() -> list[tuple[str, str, str, str, str]]:
    """Return (section, name, allowed values, default, unit and reason) of every field, for ``check`` and the docs."""
    rows = [_row("server", item) for item in fields(ServerConfig)]
    rows += [_row("curve", item) for item in fields(CurveConfig)]
    rows += [_row("leases", item) for item in fields(LeaseConfig)]
    rows += [_row("lane.NAME", item) for item in fields(LaneConfig) if "rule" in item.metadata]
    rows += [_row("lane.NAME.gpu", item) for item in fields(GpuConfig)]
    rows += [_stage_row(item) for item in fields(StageConfig) if "rule" in item.metadata]
    for (stage, use), params in PARAMS.items():
        section = f"lane.NAME.{stage}"
        rows += [
            (section, key, rule.expected, _toml(default), f'{why} Of use = "{use}".')
            for key, (rule, default, why) in params.items()
        ]
    return rows + [_row("lane.NAME.STAGE.outputs", item) for item in fields(OutputConfig)]


def _row(section: str, item: Field[Any]) -> tuple[str, str, str, str, str]:
    about = item.metadata
    default = about["default"] or _toml(item.default)
    unit = f"{about['unit']}. " if about["unit"] else ""
    return section, item.name, about["rule"].expected, default, unit[:1].upper() + unit[1:] + about["why"]


def _stage_row(item: Field[Any]) -> tuple[str, str, str, str, str]:
    """Return the row of a stage table's field; what ``use`` may be differs from stage to stage."""
    section, name, allowed, default, why = _row("lane.NAME.STAGE", item)
    return section, name, (_uses() if name == "use" else allowed), default, why


def _uses() -> str:
    words = "; ".join(f"{stage}: {', '.join(names)}" for stage, names in USES.items())
    return f"{words}; or module:function"


def _toml(value: object) -> str:
    """Return a default as the file would spell it; a field without one is required."""
    if isinstance(value, bool | str | int | float | tuple):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{}"
    return "required"
