"""One real server for all tests of a module, where each would only wait for the same start."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from raw_client import statistics
from server import Server, left_behind, wait_until


@contextmanager
def shared_server(config: Callable[[Path], str]) -> Iterator[Server]:
    """Serve what *config* says for a directory of its own; at the end no process may have died, and the ledger must balance."""
    place = Path(tempfile.mkdtemp(prefix="slt-"))
    server = Server(place, config(place))
    try:
        yield server.start()
        assert statistics(server.control)["ledger.balanced"]
        assert server.deaths() == []
        assert server.stop() == 0
        wait_until(lambda: not left_behind(place), "the end")
    finally:
        print(server.errors()[-4000:])
        server.kill()
        shutil.rmtree(place, ignore_errors=True)
