"""How much memory the machine and our control groups still give. Taking more does not fail: the kernel kills somebody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
OWN_GROUPS = Path("/proc/self/cgroup")
GROUPS_ROOT = Path("/sys/fs/cgroup")


def available_bytes(meminfo: Path = MEMINFO, own_groups: Path = OWN_GROUPS, root: Path = GROUPS_ROOT) -> int | None:
    """Return the least of what the kernel and each control group above us can still give; None when none of them tells."""
    found = [kib * 1024 for key, kib in _numbers(meminfo) if key == "MemAvailable:"]
    for group, limit_name, usage_name in _groups(own_groups, root):
        limit, usage = _number(group / limit_name), _number(group / usage_name)
        if limit is not None and usage is not None:
            # Cached files are counted as usage and given up when memory is needed.
            cached = sum(size for key, size in _numbers(group / "memory.stat") if key in ("active_file", "inactive_file"))
            found.append(max(0, limit - usage + cached))
    return min(found, default=None)


def _groups(own_groups: Path, root: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield our memory groups with their files of limit and usage; version 1 and 2 may be there side by side."""
    for line in _text(own_groups).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            top, names = root, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            top, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        group = top / path.lstrip("/")
        yield from ((place, *names) for place in (group, *group.parents) if place.is_relative_to(top) and place.is_dir())


def _numbers(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (key, number) of the lines that have both."""
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) >= 2 and words[1].isdecimal():
            yield words[0], int(words[1])


def _number(path: Path) -> int | None:
    """Return the number in a file; None without one: "max" is no limit."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
