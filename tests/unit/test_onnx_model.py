"""Opening a model: what a person is told when onnxruntime itself is at fault."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from schemas.status import ConfigError
from stages.onnx_model import read_model


def test_what_is_left_of_two_packages_is_told_as_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime and onnxruntime-gpu write one directory: removing one leaves a module without content."""
    monkeypatch.setitem(sys.modules, "onnxruntime", ModuleType("onnxruntime"))

    with pytest.raises(ConfigError, match=r"not whole .*: pip uninstall -y onnxruntime onnxruntime-gpu && pip install"):
        read_model(Path(__file__), max_batch_size=1)
