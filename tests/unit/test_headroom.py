"""What the machine and the control groups still give, read from files as the kernel writes them."""

from __future__ import annotations

from pathlib import Path

from broker.headroom import available_bytes

MEMINFO = "MemTotal:       24684096 kB\nMemFree:        23671196 kB\nMemAvailable:   2000 kB\n"


def available(place: Path, groups: str) -> int | None:
    """Return what is available with these own groups, below the root *place*/groups."""
    (place / "meminfo").write_text(MEMINFO)
    (place / "own").write_text(groups)
    return available_bytes(place / "meminfo", place / "own", place / "groups")


def group(place: Path, files: dict[str, str]) -> None:
    """Make one control group."""
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / name).write_text(text + "\n")


def test_without_groups_it_is_the_kernels_word(tmp_path: Path) -> None:
    """MemAvailable is in KiB."""
    assert available(tmp_path, "") == 2000 * 1024


def test_a_groups_limit_counts_without_its_cached_files(tmp_path: Path) -> None:
    """Version 2, as in a container."""
    stat = "anon 100\nactive_file 30\ninactive_file 20\nshmem 7"
    group(tmp_path / "groups" / "a", {"memory.max": "1000", "memory.current": "400", "memory.stat": stat})

    assert available(tmp_path, "0::/a\n") == 650


def test_an_outer_group_may_be_the_narrower(tmp_path: Path) -> None:
    """The least counts."""
    group(tmp_path / "groups" / "a", {"memory.max": "500", "memory.current": "450"})
    group(tmp_path / "groups" / "a" / "b", {"memory.max": "max", "memory.current": "400"})

    assert available(tmp_path, "0::/a/b\n") == 50


def test_version_1_has_other_names(tmp_path: Path) -> None:
    """Its memory controller has a tree of its own."""
    group(tmp_path / "groups" / "memory" / "a", {"memory.limit_in_bytes": "900", "memory.usage_in_bytes": "100"})

    assert available(tmp_path, "9:name=systemd:/\n4:cpu,memory:/a\n") == 800


def test_nobody_tells(tmp_path: Path) -> None:
    """No file can be read."""
    assert available_bytes(tmp_path / "no", tmp_path / "no", tmp_path / "no") is None
