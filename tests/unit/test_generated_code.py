"""The committed generated code is what the schema generates, where its compiler is present."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_generated_code_fits_the_schema() -> None:
    """Without the compiler the check says so and passes."""
    done = subprocess.run([ROOT / ".ci" / "generate_fb", "--check"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_the_systems_compiler_takes_the_schema_for_foreign_clients(tmp_path: Path) -> None:
    """Debian's is years older than ours, and C++ clients must use it."""
    flatc = shutil.which("flatc", path="/usr/local/bin:/usr/bin:/bin")
    if flatc is None:
        pytest.skip("no flatbuffers-compiler of the system")
    command = [flatc, "--cpp", "--ts", "--require-explicit-ids", "-o", tmp_path, ROOT / "schemas" / "infer.fbs"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
