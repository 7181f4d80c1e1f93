"""Where a user's functions are found: beside the config file, before anything that is installed under the same name."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from places import StartServer
from server import run_once

from clients import Client
from stages.pipeline import Pipeline

# A module of Python's own that nothing here imports.
TAKEN_NAME = "tabnanny"
CONFIG = f"""
[lane.mine]
slots = 2
max_encoded_bytes = 4096
[lane.mine.decode]
use = "{TAKEN_NAME}:answer"
outputs = [{{ name = "y", dtype = "UINT8", shape = [1] }}]
"""
FUNCTION = """
def answer(inputs, outputs, params):
    outputs["y"][:] = 42
"""


def test_a_module_beside_the_config_hides_an_installed_one(make_server: StartServer, place: Path) -> None:
    """For ``check``, for a server and embedded."""
    (place / f"{TAKEN_NAME}.py").write_text(FUNCTION)
    server = make_server(CONFIG).start()
    with Client(server.endpoint) as client:
        assert client.infer("mine", {"x": np.zeros(1, np.uint8)})["y"].tolist() == [42]
    assert server.stop() == 0
    assert run_once(place, "check", "config.toml").returncode == 0

    path, loaded = list(sys.path), sys.modules.pop(TAKEN_NAME, None)
    try:
        with Pipeline(place / "config.toml") as pipeline:
            assert pipeline.infer("mine", {"x": np.zeros(1, np.uint8)})["y"].tolist() == [42]
    finally:
        sys.path[:] = path
        del sys.modules[TAKEN_NAME]
        if loaded is not None:
            sys.modules[TAKEN_NAME] = loaded
