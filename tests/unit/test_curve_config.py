"""The table [curve] of the config file, and what it changes about endpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from curve_files import write_new

from schemas.config import Config, CurveConfig, parse_config
from schemas.status import ConfigError

CURVE = '[curve]\nsecret_key = "server.secret"\nclients = "clients"\n'


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A directory with what CURVE names."""
    write_new(tmp_path, "server")
    (tmp_path / "clients").mkdir()
    return tmp_path


def parse(text: str, base: Path) -> Config:
    """Return the config of *text* with a lane."""
    return parse_config(text + "[lane.a]\n", base=base, source="line.toml")


def message(text: str, base: Path) -> str:
    """Return the one line that *text* leads to."""
    with pytest.raises(ConfigError) as caught:
        parse(text, base)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_paths_start_at_the_files_directory(base: Path) -> None:
    """And are absolute afterwards; without the table there are no keys."""
    assert parse(CURVE, base).curve == CurveConfig(base / "server.secret", base / "clients")
    assert parse("", base).curve is None


@pytest.mark.parametrize("address", ["0.0.0.0", "*", "[::]", "192.0.2.7"])
def test_with_keys_clients_may_come_from_other_machines(base: Path, address: str) -> None:
    """Without them the line names both cures."""
    server = f'[server]\nendpoint = "tcp://{address}:7000"\n'

    assert parse(server + CURVE, base).server.endpoint == f"tcp://{address}:7000"
    assert "keys in [curve], or server.insecure = true" in message(server, base)


def test_the_control_socket_asks_for_no_keys_and_so_stays_on_the_machine(base: Path) -> None:
    """Even loopback: every user of the machine reaches that."""
    control = '[server]\nendpoint = "tcp://127.0.0.1:7000"\ncontrol = "tcp://127.0.0.1:7001"\n'

    assert 'server.control = "tcp://127.0.0.1:7001": expected ipc://PATH' in message(control + CURVE, base)
    assert parse(control, base).server.control == "tcp://127.0.0.1:7001"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[curve]\nclients = "clients"\n', "curve.secret_key: missing; [curve] needs secret_key and clients"),
        ('[curve]\nsecret_key = "server.secret"\n', "curve.clients: missing"),
        (CURVE.replace("server.secret", "none"), "curve.secret_key = "),
        (
            CURVE.replace('"clients"', '"server.pub"'),
            "a directory of public keys; there is none: correct the path",
        ),
        (CURVE + "key = 1\n", "curve.key: unknown"),
        ("curve = 3\n", "expected a table, written [curve]"),
    ],
)
def test_a_mistake_is_told_with_its_cure(base: Path, text: str, said: str) -> None:
    """Which key, and what to do."""
    assert said in message(text, base)
