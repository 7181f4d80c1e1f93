"""Files of a running server: the lock of its endpoint, its socket files, its private directory. All gone when it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from schemas.status import ConfigError

# Our private directories, and the file in each that its server keeps locked as long as it lives.
# Room for /slotline-XXXXXXXX/ and the longest name in it, within ipc's 107 bytes.
MAX_BASE_BYTES = 60
PREFIX = "slotline-"
LOCK_NAME = "lock"


def ipc_path(endpoint: str) -> Path | None:
    """Return the file of an ipc endpoint, None for others."""
    return Path(endpoint.removeprefix("ipc://")) if endpoint.startswith("ipc://") else None


class Places:
    """Owns the files of one server from ``claim`` to ``release``.

    Args:
        endpoints: where clients connect, and the control socket; those that are ipc have files.
    """

    def __init__(self, endpoints: list[str]) -> None:
        self._sockets = [path for endpoint in endpoints if (path := ipc_path(endpoint)) is not None]
        self._locks: list[tuple[int, Path]] = []
        self._own_lock = -1
        self.directory = ""

    def claim(self) -> None:
        """Make the directories, take the locks, remove what a killed server left.

        Raises:
            ConfigError: another server is there, or a directory cannot be used; one line with the cure.
        """
        for path in self._sockets:
            _make_directory(path.parent)
            self._locks.append((_lock(path), path.with_name(path.name + ".lock")))
            _remove_stale(path)
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        base = _base([runtime, tempfile.gettempdir(), "/tmp", "/var/tmp"])
        try:
            _sweep_dead(base)
            self.directory = tempfile.mkdtemp(prefix=PREFIX, dir=base)
        except OSError as error:
            reason = (error.strerror or "cannot be used").lower()
            raise ConfigError(f"private directory below {base}: {reason}: set TMPDIR to a directory of yours") from None
        self._own_lock = _lock_directory(Path(self.directory))

    def sweep(self) -> None:
        """Remove the socket files of an epoch that is over."""
        for path in self._sockets:
            path.unlink(missing_ok=True)
        for entry in os.scandir(self.directory):
            if not entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)

    def release(self) -> None:
        """Remove everything."""
        if self.directory:
            self.sweep()
            shutil.rmtree(self.directory, ignore_errors=True)
            os.close(self._own_lock)
            self.directory = ""
        for descriptor, path in self._locks:
            path.unlink(missing_ok=True)
            os.close(descriptor)
        self._locks.clear()


def _base(candidates: list[str]) -> Path:
    """Return the first of *candidates* for the private directory. Sockets live in it: a long path leaves no room in 107 bytes."""
    for name in candidates:
        if name and len(os.fsencode(name)) <= MAX_BASE_BYTES and os.access(name, os.W_OK | os.X_OK):
            return Path(name)
    raise ConfigError(f"no directory for sockets: set TMPDIR to one of yours with a path of at most {MAX_BASE_BYTES} bytes")


def _remove_stale(path: Path) -> None:
    """Remove the socket of a killed server; anything else at its place is somebody's and stays."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"server.endpoint ipc://{path}: there is a file that is no socket: choose another endpoint or move it")
    path.unlink(missing_ok=True)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or "cannot be made").lower()
        raise ConfigError(f"server.endpoint: directory {directory}: {reason}: choose a directory of yours") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigError(f"server.endpoint: directory {directory}: no rights to write there: choose a directory of yours")


def _lock(path: Path) -> int:
    """Take the lock beside *path*: it tells whether a server lives there, where bind alone would replace it silently."""
    lock = path.with_name(path.name + ".lock")
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            reason = (error.strerror or "cannot be opened").lower()
            raise ConfigError(f"server.endpoint: lock file {lock}: {reason}: choose a directory of yours") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise ConfigError(
                f"server.endpoint ipc://{path}: in use by the server with pid {owner}: stop it or choose another endpoint"
            ) from None
        content = os.pread(descriptor, 64, 0)
        if content.strip() and not content.strip().isdigit():
            os.close(descriptor)
            raise ConfigError(f"server.endpoint: lock file {lock}: there is a file that is no lock: choose another endpoint")
        # Another server may have removed the file between our open and our lock: then this lock is on nothing.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == os.stat(lock).st_ino:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                return descriptor
        os.close(descriptor)


def _lock_directory(directory: Path) -> int:
    """Lock the directory's lock file and return it. It gets its name when it is locked: one that is not is a dead server's."""
    new = directory / "lock.new"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    new.rename(directory / LOCK_NAME)
    return descriptor


def _sweep_dead(base: Path) -> None:
    """Remove the private directories that killed servers of this user left in *base*."""
    for entry in os.scandir(base):
        if not entry.name.startswith(PREFIX) or not entry.is_dir(follow_symlinks=False):
            continue
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_uid == os.geteuid() and _is_dead(Path(entry.path)):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_dead(directory: Path) -> bool:
    """True when no server holds the directory's lock; raise OSError when it has none."""
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
