"""Write the generated parts of operations.md anew: the complete sample and the table of every config field.

Run it in the tree after a change of a field: ``python docs/config_reference.py``.
"""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operations.md"
MARK = "<!-- Written by `python docs/config_reference.py`; a test compares. -->\n"


def reference() -> str:
    """Return the tables of all fields, one for each section of the file."""
    # Imported here so that the script finds the tree's own package wherever it is started.
    sys.path.insert(0, str(ROOT))
    from schemas.config import field_table

    parts = []
    for section, rows in groupby(field_table(), key=lambda row: row[0]):
        parts.append(f"\n### [{section}]\n\n| field | allowed | default | unit and why |\n|---|---|---|---|\n")
        parts += [f"| `{name}` | {allowed} | {default} | {why} |\n" for _, name, allowed, default, why in rows]
    return "".join(parts)


def page(text: str) -> str:
    """Return *text*, the whole page, with its generated parts replaced."""
    sample = (ROOT / "examples" / "sample.toml").read_text(encoding="utf-8")
    with_sample = re.sub(r"```toml\n.*?```", lambda _: f"```toml\n{sample}```", text, count=1, flags=re.DOTALL)
    return with_sample.split(MARK)[0] + MARK + reference()


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
