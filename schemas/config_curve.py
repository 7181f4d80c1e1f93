"""The config's table [curve]: who may connect, by key. Reading the files is in key_files.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from schemas.config_rules import about, text


@dataclass(frozen=True, slots=True)
class CurveConfig:
    """Keys of the clients' endpoint. With this table it takes only clients whose key is listed, whatever its transport."""

    secret_key: Path = field(
        metadata=about(
            text(r".+", "a path"),
            "The server's secret key, made by the command keys server; read at start. Relative to the config file.",
        )
    )
    clients: Path = field(
        metadata=about(
            text(r".+", "a path"),
            "Directory with NAME.pub of each client that may come in; its name in logs is NAME. Looked at twice a second.",
        )
    )
