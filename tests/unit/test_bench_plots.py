"""The plots of a run: four PNG files, and no empty ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_bench_results import REPORT, make_point

from bench.histogram import Histogram

pytest.importorskip("matplotlib")

from bench.plots import check_matplotlib, draw_all


def test_a_sweep_is_drawn_four_times(tmp_path: Path) -> None:
    """Each file is a picture of some size."""
    from PIL import Image

    check_matplotlib()
    paths = draw_all([make_point(), make_point(rate=300.0)], tmp_path / "new" / "place")

    assert [path.stem for path in paths] == ["throughput", "distribution", "batches", "stages"]
    for path in paths:
        with Image.open(path) as picture:
            assert min(picture.size) > 300


def test_what_has_no_figures_is_not_drawn(tmp_path: Path) -> None:
    """A load without one answer, of a server that gives no times."""
    import dataclasses

    check_matplotlib()
    silent = dataclasses.replace(REPORT, latency=Histogram.of([]), stages=(), timed=0)

    assert draw_all([make_point(silent)], tmp_path) == []
