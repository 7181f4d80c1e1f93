"""A station that judges parts and never stands still: whatever dies, the verdict comes in time, and is NG when it is not known.

Start the demo's lanes with `slotline serve demo`, now or later. Then:

    python examples/qc_station.py ipc://run/slotline.ipc PHOTO...
"""

from __future__ import annotations

import sys
from pathlib import Path

from clients import Client, Encoded, SlotlineError

# The ejector fires 300 ms after the photo.
BUDGET_US = 200_000


def reject(error: SlotlineError) -> str:
    """Say why a part was not judged; it leaves the line."""
    print(f"not judged: {error}", file=sys.stderr)
    return "NG"


def main(endpoint: str, photos: list[str]) -> None:
    """Judge each photo and print its verdict."""
    # Without connect=False a station could not start before its server.
    with Client(endpoint, connect=False) as client:
        for photo in photos:
            image = Encoded(Path(photo).read_bytes())
            answer = client.infer("qc", {"image": image}, budget_us=BUDGET_US, on_failure=reject)
            print(answer if isinstance(answer, str) else answer["verdict"][0].decode(), photo, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
