"""Each event is one JSON line on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from schemas.logs import configure, get_logger


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    """Leave structlog and the exception hook as the other tests expect them."""
    hook = sys.excepthook
    yield
    sys.excepthook = hook
    structlog.reset_defaults()


def lines(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return what was written to stderr, each line parsed alone."""
    return [json.loads(line) for line in capfd.readouterr().err.splitlines()]


def test_an_event_is_one_json_line_with_time_level_and_process(capfd: pytest.CaptureFixture[str]) -> None:
    """The line names its process, its level and the time in UTC beside the event's own fields."""
    configure("infer.0", "info")

    get_logger().info("stage_ready", warmup_ms=412)

    (line,) = lines(capfd)
    assert {key: line[key] for key in ("event", "level", "process", "warmup_ms")} == {
        "event": "stage_ready",
        "level": "info",
        "process": "infer.0",
        "warmup_ms": 412,
    }
    assert line["timestamp"].endswith("Z")


def test_events_below_the_level_are_not_written(capfd: pytest.CaptureFixture[str]) -> None:
    """At level warning, info is silent and warning is not."""
    configure("broker", "warning")

    get_logger().info("quiet")
    get_logger().warning("loud")

    assert [line["event"] for line in lines(capfd)] == ["loud"]


def test_an_exception_stays_inside_its_line(capfd: pytest.CaptureFixture[str]) -> None:
    """A traceback is a field of the line, not lines of its own."""
    configure("broker", "info")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        get_logger().exception("failed")

    (line,) = lines(capfd)
    assert "ValueError: two" in line["exception"]
    assert line["level"] == "error"


def test_an_uncaught_exception_becomes_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    """The hook that Python calls for an exception nobody caught writes JSON."""
    configure("broker", "info")
    error = RuntimeError("state lost")

    sys.excepthook(type(error), error, None)

    (line,) = lines(capfd)
    assert line["event"] == "uncaught"
    assert "state lost" in line["exception"]


def test_a_value_json_does_not_know_is_written_as_text(capfd: pytest.CaptureFixture[str]) -> None:
    """An event never fails because of the type of a field."""
    configure("broker", "info")

    get_logger(lane="qc").info("odd", value={1, 2}, raw=b"\xff\n")

    (line,) = lines(capfd)
    assert line["lane"] == "qc"
    assert line["raw"] == r"b'\xff\n'"


def test_a_logger_made_before_the_setup_follows_it(capfd: pytest.CaptureFixture[str]) -> None:
    """Modules may keep a logger from import time on."""
    log = get_logger()
    configure("late", "info")

    log.info("hello")

    assert lines(capfd)[0]["process"] == "late"


def test_a_closed_stderr_does_not_end_the_process() -> None:
    """Writing to a pipe whose reader has gone is silent."""
    configure("broker", "info")
    saved = os.dup(2)
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 2)
    os.close(writer)
    try:
        get_logger().info("nobody_reads")
    finally:
        os.dup2(saved, 2)
        os.close(saved)
