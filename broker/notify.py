"""What a server says of itself while it runs: to systemd (Type=notify), and in the ready line. Neither zmq nor numpy.

Source: sd_notify(3) and sd_watchdog_enabled(3): datagrams of KEY=VALUE lines to the socket that NOTIFY_SOCKET names.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
from collections.abc import Mapping

from schemas.logs import get_logger

# A manager reads at once; one that does not must not stop us.
SEND_S = 0.1


class Notifier:
    """Tells the service manager of *environment*; without one it does nothing.

    Args:
        environment: of this process; NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are read.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        # Half of what the manager allows, as it asks for; 0 = it does not watch this process.
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        allowed = environment.get("WATCHDOG_USEC", "")
        self._interval_ns = int(allowed) * 1000 // 2 if is_ours and allowed.isdecimal() else 0
        self._next_ns = 0
        self._is_ready = False

    def ready(self) -> None:
        """Say that every lane is served; from here on the manager watches."""
        self._is_ready = True
        self._send("READY=1")

    def stopping(self) -> None:
        """Say that the end has begun."""
        self._send("STOPPING=1")

    def alive(self, now_ns: int) -> None:
        """Feed the watchdog when it is time to; to be called only while the broker beats."""
        if self._is_ready and self._interval_ns and now_ns >= self._next_ns:
            self._next_ns = now_ns + self._interval_ns
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        # A name that begins with @ is in the abstract namespace.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.settimeout(SEND_S)
            try:
                out.sendto(text.encode(), address)
            except OSError as error:
                # The server serves all the same; if the manager misses it, it will act.
                get_logger().warning("notify_failed", text=text, reason=str(error))


def ready_line(endpoint: str, control: str, *, as_json: bool) -> str:
    """Return the line that whoever started the server waits for: an object, or words, quoted where they would be split."""
    if as_json:
        return json.dumps({"ready": True, "endpoint": endpoint, "control": control})
    return f"ready {_word(endpoint)} control={_word(control)}"


def _word(text: str) -> str:
    return shlex.quote(text) if any(char.isspace() or char in "'\"\\" for char in text) else text
