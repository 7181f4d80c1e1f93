"""The same lanes without a server: the models run in this process, the answers are the same to the last bit.

python examples/embedded.py stages/demo/demo.toml stages/demo/parts/part_101_00.png
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from schemas.arrays import Encoded
from stages.pipeline import Pipeline


def main(config: str, photo: str) -> None:
    """Judge one photo and score one tick."""
    with Pipeline(config) as pipeline:
        part = pipeline.infer("qc", {"image": Encoded(Path(photo).read_bytes())})
        tick = pipeline.infer("ticks", {"features": np.zeros((1, 67), np.float32)})
    print(part["verdict"][0].decode(), tick["log_vol"])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
