"""Every row of docs/failures.md that a user of C++ or Node can meet has its test with both clients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from foreign_rows import PYTHON_ONLY, SHOWN, UNSEEN

ROOT = Path(__file__).parents[2]
CASES = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / "e2e").glob("foreign_*.py")))


def events() -> Iterator[str]:
    """Yield the first cell of each row of the page but in the parts for Python alone; a table ends those that no heading ends."""
    is_pythons = False
    for line in (ROOT / "docs" / "failures.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            is_pythons = False
        is_pythons = is_pythons or line.startswith(PYTHON_ONLY)
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 4 and cells[0] != "event" and not is_pythons:
            yield cells[0]


def test_every_row_has_its_test_or_its_reason() -> None:
    """And none is listed that the page no longer has."""
    found = list(events())

    assert len(found) == len(set(found))
    assert sorted(found) == sorted([*SHOWN, *UNSEEN])


def test_every_test_named_is_one_that_both_clients_run() -> None:
    """It is a method of the cases that test_cpp_client.py and test_node_client.py inherit."""
    methods = set(re.findall(r"^    def (test_\w+)\(", CASES, re.MULTILINE))
    classes = set(re.findall(r"^class (\w+Cases):", CASES, re.MULTILINE))
    inherited = [
        set(re.search(r"^class Test\w+Client\((.+)\):", (ROOT / "tests" / "e2e" / name).read_text(), re.MULTILINE)[1].split(", "))
        for name in ("test_cpp_client.py", "test_node_client.py")
    ]

    assert {test for tests in SHOWN.values() for test in tests} <= methods
    assert inherited == [classes, classes]


def test_the_parts_for_python_alone_are_there() -> None:
    """A heading that was renamed would let its rows pass for everybody's, or everybody's for Python's."""
    text = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")

    assert all(text.count(f"\n{start}") == 1 for start in PYTHON_ONLY)
