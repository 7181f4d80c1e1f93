"""Check a built wheel as a user meets it: top-level names, installation in an empty environment, one inference from elsewhere.

Not collected by pytest, because it builds an environment of its own: `.ci/run` runs it. One line and exit 1 when it is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

TOP_LEVEL = {"broker", "clients", "run.py", "schemas", "stages"}
WATCHDOG_S = 600


def top_level_names(wheel: Path) -> set[str]:
    """Return the first part of each path in *wheel*, without its own metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name.split("/")[0] for name in archive.namelist()}
    return {name for name in names if not (name.startswith("slotline-") and name.endswith(".dist-info"))}


def install(wheel: Path, constraints: Path, environment: Path) -> Path:
    """Install *wheel* with its cpu extra in a new environment; return that environment's Python."""
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "-q", "-c", str(constraints.resolve()), f"{wheel.resolve()}[cpu]"]
    subprocess.run(command, check=True, timeout=WATCHDOG_S)
    return python


def run_demo(python: Path, elsewhere: Path) -> None:
    """Run the demo as the installed module, from a directory that has nothing of ours.

    Raises:
        SystemExit: it fails, or its last line is not the result.
    """
    command = [str(python), "-m", "run", "demo", "--json"]
    run = subprocess.run(command, cwd=elsewhere, stdout=subprocess.PIPE, text=True, timeout=WATCHDOG_S, check=False)
    if run.returncode != 0:
        raise SystemExit(f"`python -m run demo --json` from another directory: exit {run.returncode}, expected 0")
    result = json.loads(run.stdout.splitlines()[-1])
    if not result["qc"] or result["ticks"]["count"] < 1 or result["ledger"]["balanced"] is not True:
        raise SystemExit(f"the demo's result is not what it should be: {run.stdout.splitlines()[-1][:200]}")


def main() -> None:
    """Check the wheel that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--constraints", type=Path, required=True)
    options = parser.parse_args()
    names = top_level_names(options.wheel)
    if names != TOP_LEVEL:
        raise SystemExit(f"top-level names of the wheel: {sorted(names)}, expected {sorted(TOP_LEVEL)}")
    with tempfile.TemporaryDirectory(prefix="another directory ") as scratch:
        elsewhere = Path(scratch) / "elsewhere"
        elsewhere.mkdir()
        python = install(options.wheel, options.constraints, Path(scratch) / "venv")
        subprocess.run(
            [python.parent / "slotline", "--help"], cwd=elsewhere, stdout=subprocess.DEVNULL, check=True, timeout=WATCHDOG_S
        )
        run_demo(python, elsewhere)
    print("wheel: names, installation, console script and one demo from another directory are right", file=sys.stderr)


if __name__ == "__main__":
    main()
