"""The tick requests of the benchmark: valid messages with the real rows inside."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from bench.ticks import tick_headers
from schemas.fb import Body, Infer, Message
from schemas.status import ConfigError, Kind, Place
from schemas.tensors import DType
from schemas.verify import verify


def write_rows(path: Path, features: np.ndarray) -> Path:
    """Write *features* as a file of ticks."""
    np.savez(path, features=features)
    return path


def test_a_row_travels_inline_in_its_own_header(tmp_path: Path) -> None:
    """Read back with the generated code, request k is an inference of row k and nothing else."""
    features = np.random.default_rng(5).standard_normal((3, 67)).astype(np.float32)
    headers = tick_headers(write_rows(tmp_path / "rows.npz", features))
    assert len(headers.table) == 3 * headers.header_bytes

    for index, row in enumerate(features):
        header = headers.table[index * headers.header_bytes :][: headers.header_bytes]
        verify(header)
        parsed = Message.Message.GetRootAs(header)
        assert (parsed.Route().Kind(), parsed.Route().PayloadFrames()) == (Kind.INFER_REQUEST, 0)
        assert parsed.BodyType() == Body.Body.Infer
        infer = Infer.Infer()
        infer.Init(parsed.Body().Bytes, parsed.Body().Pos)
        tensor = infer.Inputs(0)
        assert (infer.Model(), tensor.Name(), tensor.Dtype(), tensor.Place()) == (b"ticks", b"features", DType.FP32, Place.INLINE)
        assert tensor.ShapeAsNumpy().tolist() == [1, 67]
        assert tensor.InlineDataAsNumpy().tobytes() == row.tobytes()


def test_the_id_is_patched_where_the_route_is(tmp_path: Path) -> None:
    """The offset handed to the generator is that of Route.request_id."""
    headers = tick_headers(write_rows(tmp_path / "rows.npz", np.zeros((1, 67), np.float32)))
    table = bytearray(headers.table)
    struct.pack_into("<Q", table, headers.id_at, 77)

    assert Message.Message.GetRootAs(table).Route().RequestId() == 77


def test_a_file_without_ticks_is_refused(tmp_path: Path) -> None:
    """A missing file and one with other numbers in it are one line with the cure."""
    with pytest.raises(ConfigError, match=r"No such file.*--rows"):
        tick_headers(tmp_path / "none.npz")
    with pytest.raises(ConfigError, match=r"float64 \(2, 67\), expected float32"):
        tick_headers(write_rows(tmp_path / "rows.npz", np.zeros((2, 67))))
