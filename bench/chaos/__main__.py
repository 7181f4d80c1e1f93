"""``python -m bench.chaos``: the command ``chaos`` alone, from the source tree."""

from __future__ import annotations

import argparse
import sys

from bench.chaos.command import add_arguments, run
from schemas.status import ConfigError


def main() -> int:
    """Run the command; a person's mistake is one line and code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.chaos", description="Break a server on purpose, and count what came of it."
    )
    add_arguments(parser)
    try:
        return run(parser.parse_args())
    except ConfigError as error:
        print(f"slotline: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
