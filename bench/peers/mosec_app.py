"""mosec, one stage: ``python mosec_app.py --port N``. PEER_WORKLOAD, PEER_MODEL, PEER_WORKERS, PEER_BATCH say what it serves."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from mosec import Server, Worker

from bench.peers import work


class Bytes(Worker):  # type: ignore[misc]
    """Bytes in, bytes out: the cheapest form that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.model = work.session() if "PEER_MODEL" in os.environ else None

    def deserialize(self, data: Any) -> Any:
        """Hand the body on as it is."""
        return data

    def serialize(self, data: bytes) -> bytes:
        """Answer with what was computed."""
        return data


class Tick(Bytes):
    """One tick a call, or with PEER_BATCH a list of them."""

    def forward(self, data: Any) -> Any:
        """Run the model."""
        if not isinstance(data, list):
            return work.ticks(self.model, np.frombuffer(data, np.float32)[None])[0].tobytes()
        rows = np.stack([np.frombuffer(one, np.float32) for one in data])
        return [row.tobytes() for row in work.ticks(self.model, rows)]


class Photo(Bytes):
    """One photo a call."""

    def forward(self, data: bytes) -> bytes:
        """Decode, preprocess, run."""
        (found,) = work.photos(self.model, [data])
        return found["classes"].tobytes() + found["scores"].tobytes()


class Frame(Bytes):
    """One frame a call."""

    def forward(self, data: bytes) -> bytes:
        """Compute the statistics of the tiles."""
        means, flags = work.frame(data)
        return means.tobytes() + flags.tobytes()


if __name__ == "__main__":
    server = Server()
    batch = int(os.environ.get("PEER_BATCH", "1"))
    batching = {"max_batch_size": batch, "max_wait_time": 1} if batch > 1 else {}
    stage = {"tick": Tick, "photo": Photo, "frame": Frame}[os.environ["PEER_WORKLOAD"]]
    server.append_worker(stage, num=int(os.environ["PEER_WORKERS"]), **batching)
    server.run()
