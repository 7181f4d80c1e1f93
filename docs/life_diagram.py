"""Write the diagram of a request's life in architecture.md anew, from the table that the broker follows.

Run it in the tree after a change of ``broker/life.py``: ``python docs/life_diagram.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- Written by `python docs/life_diagram.py`; a test compares. -->\n"
END = "<!-- End of what is written. -->\n"


def diagram() -> str:
    """Return the table of transitions as a Mermaid state diagram; events between the same two states share an arrow."""
    # Imported here so that the script finds the tree's own package wherever it is started.
    sys.path.insert(0, str(ROOT))
    from broker.life import DONE, EVENT_NAMES, QUEUED, STATE_NAMES, TRANSITIONS

    arrows: dict[tuple[int, int], list[str]] = {}
    for (state, event), after in TRANSITIONS.items():
        arrows.setdefault((state, after), []).append(EVENT_NAMES[event])
    lines = [f"[*] --> {STATE_NAMES[QUEUED]}: admit"]
    lines += [f"{STATE_NAMES[ends[0]]} --> {STATE_NAMES[ends[1]]}: {', '.join(events)}" for ends, events in arrows.items()]
    lines.append(f"{STATE_NAMES[DONE]} --> [*]")
    return "```mermaid\nstateDiagram-v2\n" + "".join(f"    {line}\n" for line in lines) + "```\n"


def page(text: str) -> str:
    """Return *text*, the whole page, with its diagram replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + diagram() + END + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
