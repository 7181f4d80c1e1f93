"""LitServe: ``python litserve_app.py --port N``. PEER_WORKLOAD, PEER_MODEL and PEER_WORKERS say what it serves.

Annotations are real objects here, not texts: LitServe reads that of ``decode_request``.
"""

import os
import sys
from typing import Annotated, Any

import litserve
import numpy as np
from fastapi import Body

from bench.peers import work

# Without this annotation bodies are parsed as JSON, which costs more than the model.
Raw = Annotated[bytes, Body(media_type="application/octet-stream")]


class Api(litserve.LitAPI):  # type: ignore[misc]
    """Bytes in, a list of numbers out."""

    def setup(self, device: str) -> None:
        """Load the model."""
        self.model = work.session() if "PEER_MODEL" in os.environ else None

    def decode_request(self, request: Raw) -> Any:
        """Hand the body on as it is."""
        return request

    def predict(self, x: bytes) -> Any:
        """Do the work of the workload."""
        workload = os.environ["PEER_WORKLOAD"]
        if workload == "tick":
            return work.ticks(self.model, np.frombuffer(x, np.float32)[None])[0]
        if workload == "photo":
            return work.photos(self.model, [x])[0]["scores"]
        return work.frame(x)[0].ravel()

    def encode_response(self, output: Any) -> Any:
        """Answer as JSON."""
        return output.tolist()


if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--port") + 1])
    workers = int(os.environ["PEER_WORKERS"])
    server = litserve.LitServer(Api(), accelerator="cpu", devices=1, workers_per_device=workers, timeout=60, fast_queue=True)
    server.run(host="127.0.0.1", port=port, num_api_servers=1, generate_client_file=False, log_level="warning", access_log=False)
