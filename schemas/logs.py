"""The one structlog set-up: each event is one JSON line on stderr. What is logged, and at which level, is each module's choice.

ERROR: a person must act. WARNING: we coped. INFO: the life of a process. DEBUG: one request.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor

STDERR_FD = 2
# structlog took level names only from 25.1 on; these are its numbers.
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class LineLogger:
    """Writes one line to stderr by one call of the kernel, so that lines of several processes on one pipe do not mix.

    Without buffer, lock or thread: nothing is lost when the process is killed after the call.
    """

    def msg(self, line: str) -> None:
        """Write *line*; a stderr that nobody reads any more must not end a server."""
        try:
            os.write(STDERR_FD, line.encode("utf-8", "backslashreplace") + b"\n")
        except OSError:
            return

    debug = info = warning = error = critical = msg


def configure(process: str, level: str) -> None:
    """Set up logging of this process, once, before its first event; an uncaught exception becomes a line too.

    Args:
        process: the name bound to each line, such as "broker" or "infer.0".
        level: least level written: debug, info, warning or error.
    """

    def add_process(_logger: object, _method: str, event: EventDict) -> EventDict:
        event["process"] = process
        return event

    processors: list[Processor] = [
        add_process,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_args: LineLogger(),
        cache_logger_on_first_use=True,
    )
    sys.excepthook = _log_uncaught


def get_logger(**bound: Any) -> FilteringBoundLogger:
    """Return a logger with *bound* on each of its lines; it may be made before ``configure`` and used after it."""
    return cast(FilteringBoundLogger, structlog.get_logger(**bound))


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Write the exception that ends this process as one line instead of a traceback of many."""
    get_logger().critical("uncaught", exc_info=(kind, error, traceback))
