"""The files that say what is installed agree with the tree and with each other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LAYERS = ("schemas", "broker", "stages", "clients")


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def constraints() -> dict[str, Version]:
    """Return name -> version of constraints.txt, names in lower case."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {name.lower(): Version(version) for name, version in pairs}


def fenced_line(heading: str) -> str:
    """Return the first fenced line under *heading* of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split(f"\n## {heading}\n")[1]
    found = re.search(r"^```\w*\n(.+)$", text, re.MULTILINE)
    assert found is not None
    return found[1]


def test_each_package_of_the_tree_is_installed(pyproject: dict[str, Any]) -> None:
    """A package that is not listed would be missing only in the wheel."""
    inits = [path.parent.relative_to(ROOT) for layer in LAYERS for path in (ROOT / layer).rglob("__init__.py")]

    assert sorted(pyproject["tool"]["setuptools"]["packages"]) == sorted(".".join(path.parts) for path in inits)


def is_foreign(path: Path) -> bool:
    """Tell the clients of other languages, which are built from the tree, from what a wheel holds."""
    return path.is_relative_to(ROOT / "clients" / "cpp") or path.is_relative_to(ROOT / "clients" / "node")


def test_each_file_beside_the_code_is_installed(pyproject: dict[str, Any]) -> None:
    """Models, pictures and tables that a package reads are matched by its package-data patterns."""
    setuptools = pyproject["tool"]["setuptools"]
    installed: set[Path] = set()
    for package, patterns in setuptools["package-data"].items():
        directory = ROOT / package.replace(".", "/")
        installed |= {path for pattern in patterns for path in directory.glob(pattern)}
    files = {path for layer in LAYERS for path in (ROOT / layer).rglob("*") if path.is_file() and not is_foreign(path)}
    # The accelerator's source is an extension module of its own, and what is built of it in place is not the tree's.
    left_out = [path for path in files - installed if path.suffix not in (".py", ".pyc", ".c", ".so")]

    assert left_out == []


def test_each_requirement_has_a_tested_version_within_its_bounds(pyproject: dict[str, Any]) -> None:
    """constraints.txt names a version of every dependency, and it is one that pyproject.toml allows.

    But for the extras of GPUs: no test has run with them, and they cannot be installed beside the one for the CPU.
    """
    project, versions = pyproject["project"], constraints()
    extras = {name: texts for name, texts in project["optional-dependencies"].items() if not name.startswith("gpu")}
    every = [*project["dependencies"], *(text for texts in extras.values() for text in texts)]

    for requirement in map(Requirement, every):
        assert requirement.specifier.contains(versions[requirement.name.lower()])


def test_the_readme_runs_the_demo_and_the_tests_in_a_new_environment() -> None:
    """Both lines start from nothing but Python and the tree."""
    run, test = fenced_line("Run"), fenced_line("Test")

    assert run.startswith("python3 -m venv .venv && ")
    assert run.endswith(" demo")
    assert "'.[cpu,dev]'" in test
    assert "-c constraints.txt" in test
    assert test.endswith("pytest")
