"""PNG plots of a run: latency against throughput, the latencies' distribution, batch sizes, time per stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from schemas.status import ConfigError

Points = Sequence[Mapping[str, Any]]
SIZE_INCHES = (8.0, 5.0)
DPI = 120


def check_matplotlib() -> None:
    """Raise ConfigError when there is nothing to draw with."""
    try:
        import matplotlib
    except ImportError:
        raise ConfigError("--plots needs matplotlib: pip install 'slotline[bench]'") from None
    # Without a display, too.
    matplotlib.use("Agg")


def draw_all(points: Points, directory: Path) -> list[Path]:
    """Write the plots of a run to *directory*, made when it is not there, and return their paths."""
    from matplotlib import pyplot

    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, draw in _PLOTS.items():
        figure, axes = pyplot.subplots(figsize=SIZE_INCHES)
        draw(axes, points)
        if axes.has_data():
            axes.grid(alpha=0.3)
            paths.append(directory / f"{name}.png")
            figure.savefig(paths[-1], dpi=DPI, bbox_inches="tight")
        pyplot.close(figure)
    return paths


def _label(found: Mapping[str, Any]) -> str:
    return f"{found['concurrency']} outstanding" if found["mode"] == "closed" else f"{found['wanted_rate']:,.0f}/s"


def _throughput(axes: Any, points: Points) -> None:
    """Draw the percentiles of every load over its throughput."""
    for name, title in (("p50_us", "p50"), ("p99_us", "p99"), ("p999_us", "p99.9")):
        known = [found for found in points if found[name] is not None]
        if known:
            axes.plot([found["rate"] for found in known], [found[name] for found in known], "o-", label=title)
    if not axes.has_data():
        return
    for found in points:
        if found["p50_us"] is not None:
            axes.annotate(
                _label(found), (found["rate"], found["p50_us"]), textcoords="offset points", xytext=(4, -10), fontsize=7
            )
    axes.set(title="Latency against throughput", xlabel="results per second", ylabel="microseconds", yscale="log")
    axes.legend()


def _distribution(axes: Any, points: Points) -> None:
    """Draw which share of the requests had an answer within which time."""
    for found in points:
        if found["curve"]:
            axes.plot(*zip(*found["curve"], strict=True), label=_label(found))
    if axes.has_data():
        axes.set(title="Distribution of latencies", xlabel="microseconds", ylabel="share of requests", xscale="log")
        axes.legend()


def _batches(axes: Any, points: Points) -> None:
    """Draw how many requests ran in a batch of which size, for the stage with the largest ones."""
    for found in points:
        if not found["stages"]:
            continue
        stage = max(found["stages"], key=lambda stage: stage["batch"])
        total = sum(stage["batches"].values()) or 1
        sizes = sorted(stage["batches"], key=int)
        axes.plot(
            list(map(int, sizes)),
            [stage["batches"][size] / total for size in sizes],
            ".-",
            label=f"{_label(found)}: {stage['name']}",
        )
    if axes.has_data():
        axes.set(title="Batch sizes", xlabel="rows of the batch", ylabel="share of requests")
        axes.legend()


def _stages(axes: Any, points: Points) -> None:
    """Draw for each load how long a request waited and ran, stage upon stage."""
    known = [found for found in points if found["stages"]]
    labels = [_label(found) for found in known]
    below = [found["backlog_us"] or 0.0 for found in known]
    if not known:
        return
    axes.bar(labels, below, label="backlog")
    for at, stage in enumerate(known[0]["stages"]):
        for key, word in (("queue_us", "waits"), ("run_us", "runs")):
            heights = [found["stages"][at][key] for found in known]
            if any(heights):
                axes.bar(labels, heights, bottom=below, label=f"{stage['name']} {word}")
                below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.set(title="Time per stage", ylabel="mean microseconds of a request")
    axes.tick_params("x", rotation=20)
    axes.legend()


_PLOTS: dict[str, Callable[[Any, Points], None]] = {
    "throughput": _throughput,
    "distribution": _distribution,
    "batches": _batches,
    "stages": _stages,
}
