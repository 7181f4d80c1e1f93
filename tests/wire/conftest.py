"""The C++ programs that read and write headers, built once per run when their tools are there."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fields_text import Checker

HERE = Path(__file__).parent
SCHEMA = HERE.parents[1] / "schemas" / "infer.fbs"
# The headers are where the system's package puts them; its compiler must have the same version.
HEADERS = Path("/usr/include/flatbuffers/base.h")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture(scope="session")
def build_cpp(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that builds a C++ source of this folder, with the header that the schema generates."""
    folder = tmp_path_factory.mktemp("cpp")
    flatc, compiler = shutil.which("flatc", path=SYSTEM_PATH), shutil.which("g++", path=SYSTEM_PATH)
    if flatc is None or compiler is None or not HEADERS.exists():
        pytest.skip("needs g++, flatbuffers-compiler and libflatbuffers-dev of the system")
    if _version(HEADERS.read_text()) != _version(subprocess.check_output([flatc, "--version"], text=True)):
        pytest.skip("the system's flatc and FlatBuffers headers differ in version")
    subprocess.run([flatc, "--cpp", "--reflect-names", "--require-explicit-ids", "-o", folder, SCHEMA], check=True)

    def build(source: str) -> Path:
        program = folder / Path(source).stem
        subprocess.run([compiler, "-std=c++17", "-O1", "-Wall", f"-I{folder}", HERE / source, "-o", program], check=True)
        return program

    return build


@pytest.fixture(scope="session")
def cpp_fields(build_cpp: Callable[[str], Path]) -> Checker:
    """Return a function that gives what ``check.cpp`` prints for each header."""
    program = build_cpp("check.cpp")

    def check(headers: list[bytes]) -> list[str]:
        stream = b"".join(struct.pack("<I", len(header)) + header for header in headers)
        done = subprocess.run([program], input=stream, stdout=subprocess.PIPE, check=True, timeout=120)
        return done.stdout.decode().splitlines()

    return check


def _version(text: str) -> list[str]:
    """Return [major, minor, revision] from the header's defines or the compiler's answer."""
    defines = re.findall(r"FLATBUFFERS_VERSION_(?:MAJOR|MINOR|REVISION) (\d+)", text)
    return defines or re.findall(r"\d+", text)
