"""Files as requests: what is no file or no array is said of that file alone, and answers are JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from clients.files import UnreadableFileError, _inputs, _plain
from schemas.messages import MetadataReply
from schemas.tensors import DType, TensorSpec

TICKS = MetadataReply("ticks", inputs=(TensorSpec("features", DType.FP32, (1, 2)),))


def unreadable(file: Path) -> str:
    """Return why *file* cannot be a request."""
    with pytest.raises(UnreadableFileError) as raised:
        _inputs(file, TICKS)
    return str(raised.value)


def test_an_array_is_the_models_one_input(tmp_path: Path) -> None:
    """Under the input's name."""
    np.save(tmp_path / "a.npy", np.ones((1, 2), np.float32))

    assert _inputs(tmp_path / "a.npy", TICKS)["features"].tolist() == [[1, 1]]


def test_a_header_that_asks_for_all_memory_is_no_array(tmp_path: Path) -> None:
    """One bad file must not cost the answers of the others."""
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000, 67), }".ljust(117) + "\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00" + header.encode())

    assert "not a .npy array" in unreadable(tmp_path / "a.npy")


def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    """They may never end."""
    os.mkfifo(tmp_path / "a.npy")

    assert unreadable(tmp_path / "a.npy") == "not a regular file"
    assert unreadable(Path("/dev/zero")) == "not a regular file"


def test_nan_and_infinity_are_told_as_text() -> None:
    """JSON has neither."""
    plain = _plain(np.array([[1.5, np.nan], [np.inf, -np.inf]], np.float32))

    assert json.loads(json.dumps(plain, allow_nan=False)) == [[1.5, "nan"], ["inf", "-inf"]]
