"""The command line of the benchmark: what lists mean, and one line for each mistake."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bench import command
from bench.arguments import add_arguments, concurrencies, rates, shapes
from schemas.status import ConfigError


def parse(*words: str) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", []), ("8", [8]), ("1,16,256", [1, 16, 256]), ("1..8", [1, 2, 4, 8]), ("3..20,512", [3, 6, 12, 20, 512]), ("4..4", [4])],
)
def test_concurrencies_are_numbers_and_doublings(text: str, expected: list[int]) -> None:
    """In the order given."""
    assert concurrencies(text) == expected


@pytest.mark.parametrize("text", ["0", "513", "x", "1..", "8..4", "-1"])
def test_a_wrong_concurrency_is_one_line(text: str) -> None:
    """It says what is allowed."""
    with pytest.raises(ConfigError, match="expected numbers from 1 to 512"):
        concurrencies(text)


def test_rates_and_shapes_are_read() -> None:
    """And refused in one line."""
    assert rates("1000,2.5e3") == [1000, 2500]
    assert shapes(["image=1,3,224,224"]) == {"image": (1, 3, 224, 224)}
    for text in ("0", "-1", "nan", "x", "1e99"):
        with pytest.raises(ConfigError, match="expected requests per second"):
            rates(text)
    for text in ("image", "image=", "=1", "image=0", "image=1,x"):
        with pytest.raises(ConfigError, match="expected NAME=DIMS"):
            shapes([text])


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ((), "name what to measure"),
        (("tick", "--endpoint", "ipc://x"), "name what to measure"),
        (("no-such-thing",), "no such workload and no such config file; there are tick, part"),
        (("tick", "--search"), "--search needs --p99-us"),
        (("tick", "--search", "--p99-us", "5", "--rate", "5"), "neither --concurrency nor --rate"),
        (("tick", "--model", "x"), "give --input, --shape and --model with a config"),
        (("tick", "--assert", "p99_us"), "expected NAME"),
        (("--suite", "bars", "--rows", "speed"), "no speed; there are"),
        (("tick", "--suite", "bars"), "--suite has targets and loads of its own"),
        (("tick", "--lease", "--packed", "2"), "give no --packed, --connections or --generator"),
        (("tick", "--lease", "--generator", "c"), "--lease has a generator of its own"),
        (("--suite", "bars", "--lease"), "--suite has targets and loads of its own"),
        (("--compare", "no-a", "no-b"), "no-a"),
    ],
)
def test_a_mistake_is_told_before_anything_is_measured(words: tuple[str, ...], match: str) -> None:
    """In one line."""
    with pytest.raises((ConfigError, OSError), match=match):
        command.run(parse(*words))


def test_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before anything is measured, too."""
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"--plots needs matplotlib: pip install 'slotline\[bench\]'"):
        command.run(parse("tick", "--plots", str(tmp_path)))


def test_the_photo_model_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the option and the variable that say where it is."""
    monkeypatch.delenv("SLOTLINE_BENCH_DATA", raising=False)
    with pytest.raises(ConfigError, match=r"effnet_lite0\.onnx .*--data DIR or SLOTLINE_BENCH_DATA$"):
        command.run(parse("photo"))
    with pytest.raises(ConfigError, match=r"not in .*\)$"):
        command.run(parse("photo", "--data", str(tmp_path)))
