"""Keys of the clients' door: who is on the allow-list, and ZeroMQ's question whether a key may come in (ZAP, RFC 27).

Owner: the broker's main thread. ZeroMQ asks over a socket inside the process, which stands in the broker's own epoll set: the
list, the clients' records and the answers have one owner, and a handshake waits at most one turn.
"""

from __future__ import annotations

import os
from pathlib import Path

import zmq
import zmq.utils.z85

from schemas.config import CurveConfig
from schemas.config_rules import NAME
from schemas.key_files import PUBLIC_SUFFIX, read_key_pair, read_public_key
from schemas.logs import get_logger
from schemas.status import ConfigError, printable

# A key on no list would be taken without an answerer at this address; ZAP_ENFORCE_DOMAIN refuses everybody then.
ZAP_ENDPOINT = "inproc://zeromq.zap.01"
DOMAIN = b"slotline"
LOOK_NS = 500_000_000
_KEY_BYTES = 32

# What says that files have changed: name, mtime, size and inode of each.
Marks = tuple[tuple[str, int, int, int], ...]


def check_has_curve() -> None:
    """Raise ConfigError when this build of pyzmq has no CURVE."""
    if not zmq.has("curve"):
        cure = "install one whose libzmq has it, such as its wheels from PyPI"
        raise ConfigError(f"[curve]: this build of pyzmq ({zmq.__version__}) has no CURVE: {cure}")


def read_server_secret(path: Path) -> str:
    """Return the server's secret key.

    Raises:
        ConfigError: the file is none of `slotline keys server`, or everybody may read it.
    """
    pair = read_key_pair(path)
    if zmq.curve_public(pair.secret.encode()).decode() != pair.public:
        raise ConfigError(f"{path}: its secret key does not belong to its public key: restore the file, or make a new pair")
    return pair.secret


class AllowList:
    """The public keys in one directory, each named by its file.

    Attributes:
        names: key -> name.
        faults: file -> why its key is not taken.

    Raises:
        ConfigError: the directory cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: Marks = ()
        self._taken: Marks | None = None
        self._is_readable = True
        self.names: dict[str, str] = {}
        self.faults: dict[str, str] = {}
        try:
            self._read(self._look())
        except OSError as error:
            reason = (error.strerror or "cannot be read").lower()
            raise ConfigError(f"curve.clients {directory}: {reason}: name a readable directory") from None
        # What changed between the look and the read is found by reading once more.
        self._taken = None

    def refresh(self) -> bool:
        """Read the files again if they have changed, and stood still since the last look; return whether the list is another.

        A directory that cannot be read changes nothing: its absence is more likely an accident than an order.
        """
        try:
            now = self._look()
            if now == self._taken:
                return False
            if now != self._seen:
                # Somebody may be writing just now; half a file must cut nobody off.
                self._seen = now
                return False
            self._taken, before = now, (self.names, self.faults)
            self._read(now)
        except OSError as error:
            if self._is_readable:
                get_logger().error(
                    "allow_list_kept", directory=str(self._directory), reason=error.strerror, clients=len(self.names)
                )
            self._is_readable = False
            return False
        self._is_readable = True
        return before != (self.names, self.faults)

    def _look(self) -> Marks:
        marks = []
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if entry.name.endswith(PUBLIC_SUFFIX) and not entry.name.startswith("."):
                    stat = _stat(entry)
                    marks.append((entry.name, stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return tuple(sorted(marks))

    def _read(self, marks: Marks) -> None:
        """Take over the keys of all files; one that is wrong has no key, and keeps nobody else out."""
        self.names, self.faults = {}, {}
        for file, *_ in marks:
            try:
                name = str(NAME.accept(file.removesuffix(PUBLIC_SUFFIX)))
                key = read_public_key(self._directory / file)
            except ValueError:
                self.faults[file] = f"its name is not {NAME.expected}"
            except ConfigError as error:
                self.faults[file] = str(error)
            else:
                if self.names.setdefault(key, name) != name:
                    self.faults[file] = f"has the same key as {self.names[key]}: one client, one key"


def _stat(entry: os.DirEntry[str]) -> os.stat_result:
    try:
        return entry.stat()
    except OSError:
        # A link that leads nowhere, or a file removed meanwhile: reading it tells.
        return entry.stat(follow_symlinks=False)


class Keeper:
    """Answers for each handshake at the clients' door whether its key is on the list.

    Raises:
        ConfigError: no CURVE, no usable secret key, or no list.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], config: CurveConfig) -> None:
        check_has_curve()
        self._secret = read_server_secret(config.secret_key)
        self.allowed = AllowList(config.clients)
        self._look_at_ns = 0
        self._refused = 0
        self._last_refused = ("", "")
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        # Before any door is bound: a handshake that nobody can answer is refused.
        self._socket.bind(ZAP_ENDPOINT)
        self._log_list(())

    def guard(self, router: zmq.Socket[bytes]) -> None:
        """Let only clients with listed keys shake hands at *router*, which is not bound yet."""
        router.setsockopt(zmq.CURVE_SERVER, 1)
        router.setsockopt(zmq.CURVE_SECRETKEY, self._secret.encode())
        router.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
        router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def fileno(self) -> int:
        """Return the descriptor, for polling."""
        return int(self._socket.get(zmq.FD))

    def drain(self, limit: int) -> int:
        """Answer up to *limit* questions that are there; return how many."""
        for count in range(limit):
            try:
                question = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return count
            self._socket.send_multipart(self._answer(question))
        return limit

    def _answer(self, question: list[bytes]) -> list[bytes]:
        """Return the frames version, request id, status, text, user id, metadata.

        The user id is the key and not its name: when a name gets a new key, connections of the old one are told apart.
        """
        _, request_id, domain, address, _, mechanism, *credentials = question
        key = ""
        if (domain, mechanism, list(map(len, credentials))) == (DOMAIN, b"CURVE", [_KEY_BYTES]):
            key = zmq.utils.z85.encode(credentials[0]).decode()
        if key in self.allowed.names:
            return [b"1.0", request_id, b"200", b"OK", key.encode(), b""]
        self._refused += 1
        self._last_refused = (key, printable(address.decode("ascii", "replace")))
        return [b"1.0", request_id, b"400", b"key not on the list", b"", b""]

    def look(self, now_ns: int) -> bool:
        """Look after the list and tell of refusals, twice a second; return whether the list has changed."""
        if now_ns < self._look_at_ns:
            return False
        self._look_at_ns = now_ns + LOOK_NS
        if self._refused:
            # One line each time, whoever knocks how often.
            key, address = self._last_refused
            get_logger().warning("refused", count=self._refused, last_key=key, last_address=address)
            self._refused = 0
        before = set(self.allowed.names.values())
        has_changed = self.allowed.refresh()
        if has_changed:
            self._log_list(before)
        return has_changed

    def _log_list(self, before: set[str] | tuple[()]) -> None:
        log, names = get_logger(), set(self.allowed.names.values())
        log.info("allow_list", clients=len(names), added=sorted(names - set(before)), removed=sorted(set(before) - names))
        for file, reason in self.allowed.faults.items():
            log.error("key_file_wrong", file=file, reason=reason)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()
