"""The package itself: another project's ``schemas`` in our place is told apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("files", [{"__init__.py": ""}, {}, {"__init__.py": "", "wire.py": "IDENTIFIER = b'HTTP'"}])
def test_another_schemas_package_is_named_with_the_cure(tmp_path: Path, files: dict[str, str]) -> None:
    """One line, whatever that package holds."""
    (tmp_path / "schemas").mkdir()
    for name, text in (files or {"user.py": ""}).items():
        (tmp_path / "schemas" / name).write_text(text)
    # A directory without __init__.py comes after every real package, so ours is not in its way only where it is not found:
    # neither in this tree nor, by -S, where Slotline is installed.
    path = tmp_path if files else _only_clients(tmp_path)

    done = subprocess.run(
        [sys.executable, "-S", "-c", "import clients"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{path}:{ROOT}" if files else str(path)},
        check=False,
        timeout=60,
    )

    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: the package `schemas` of another project took the place of Slotline's (")
    assert str(tmp_path) in last


def _only_clients(tmp_path: Path) -> Path:
    """Return a directory in which there are our clients and not our schemas."""
    (tmp_path / "clients").symlink_to(ROOT / "clients")
    return tmp_path
