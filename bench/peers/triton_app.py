"""Triton's own Python backend, with the tritonserver of the nvidia-pytriton wheel: ``python triton_app.py --port N``.

PEER_WORKLOAD, PEER_MODEL and PEER_WORKERS say what it serves. It makes a model repository, and becomes tritonserver.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Largest batch, inputs, outputs.
FORMS = {
    "tick": (64, "x TYPE_FP32 64", "y TYPE_FP32 3"),
    "photo": (8, "jpeg TYPE_STRING 1", "classes TYPE_INT32 5, scores TYPE_FP32 5"),
    "frame": (0, "frame TYPE_UINT8 1080:1920:3", "means TYPE_FP32 9:16:3, flags TYPE_BOOL 9:16"),
}


def config(workload: str, workers: str) -> str:
    """Return the model's config.pbtxt."""
    batch, inputs, outputs = FORMS[workload]
    parts = [f'name: "{workload}"', 'backend: "python"', f"max_batch_size: {batch}"]
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors.split(", "):
            name, dtype, dims = tensor.split()
            parts.append(f'{kind} [{{ name: "{name}" data_type: {dtype} dims: [{dims.replace(":", ", ")}] }}]')
    parts.append(f"instance_group [{{ kind: KIND_CPU count: {workers} }}]")
    if batch:
        parts.append("dynamic_batching { max_queue_delay_microseconds: 0 }")
    return "\n".join(parts)


def main() -> None:
    """Become tritonserver."""
    port = int(sys.argv[sys.argv.index("--port") + 1])
    workload, workers = os.environ["PEER_WORKLOAD"], os.environ["PEER_WORKERS"]
    place = Path(os.environ.get("PEER_DIRECTORY") or tempfile.mkdtemp(prefix="slotline-triton-"))
    packages = Path(sysconfig.get_paths()["purelib"])
    triton = packages / "pytriton" / "tritonserver"
    model = place / "models" / workload
    (model / "1").mkdir(parents=True)
    shutil.copy(HERE / "triton_model.py", model / "1" / "model.py")
    (model / "config.pbtxt").write_text(config(workload, workers))
    # The backend looks for its helper beside itself, and the wheel keeps one for each version of Python.
    shutil.copytree(triton / "backends", place / "backends")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy(triton / "python_backend_stubs" / version / "triton_python_backend_stub", place / "backends" / "python")
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(packages / "nvidia_pytriton.libs"),
        "PYTHONPATH": str(packages),
        "PEER_REPO": str(HERE.parent.parent),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    options = {
        "model-repository": model.parent, "backend-directory": place / "backends", "http-address": "127.0.0.1", "http-port": port,
        "http-thread-count": 2, "allow-grpc": "false", "allow-metrics": "false", "log-info": "false", "exit-timeout-secs": 2,
        "backend-config": "python,shm-default-byte-size=67108864",
    }  # fmt: skip
    server = str(triton / "bin" / "tritonserver")
    os.execve(server, [server, *(f"--{name}={value}" for name, value in options.items())], environment)


if __name__ == "__main__":
    main()
