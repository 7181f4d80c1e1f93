"""The engine of a lane on a GPU: its device, its onnxruntime session, and the checks that both really are there.

Imported by the inference process alone, and only where its lane runs on a GPU.
"""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from pathlib import Path
from typing import Any

from schemas.config import GpuConfig, LaneConfig
from schemas.logs import get_logger
from schemas.status import ConfigError, DeviceError

from .device import Model
from .device_choice import CUDA_PROVIDER, judge_nodes
from .device_cuda import CudaDevice
from .engine import Engine
from .gpu_kernel import OPTIONS, ResizeKernel, entry_name, source
from .onnx_model import OnnxModel, Place, import_onnxruntime, open_session, session_options
from .resize_plan import resize_plan
from .resized_model import ResizedModel

# What is left to the context, cuDNN and cuBLAS, and to everybody else.
SHARE_OF_FREE = 0.9


def make_cuda_engine(lane: LaneConfig, max_batch_size: int) -> Engine:
    """Load the lane's model onto its GPU.

    Raises:
        ConfigError: it does not fit there, or the file is no model.
        DeviceError: the GPU cannot be used, or onnxruntime put the model elsewhere.
    """
    assert lane.model is not None
    device = CudaDevice(lane.gpu.device_id, pool_bytes=lane.gpu.pool_bytes)
    check_budget(lane.gpu, device.free_bytes, key=f"lane.{lane.name}.gpu")
    place = Place("cuda", lane.gpu.device_id, _without_waiting())
    model = OnnxModel(lane.model, _open_session(lane, device), max_batch_size, place)
    inner: Model = _resized(lane, model, device, max_batch_size) if lane.preprocess.use == "resize" else model
    return Engine(inner, device, max_batch_size=max_batch_size, flights=lane.gpu.flights)


def _resized(lane: LaneConfig, model: OnnxModel, device: CudaDevice, max_rows: int) -> ResizedModel:
    """Put the preprocess kernel in front of the model; the lane's plan sends it pixels."""
    spec, _ = resize_plan(lane, model.inputs[0])
    kernel = ResizeKernel(spec, device.compile(source(), OPTIONS, entry_name(spec)))
    return ResizedModel(model, spec, kernel, device, max_rows=max_rows, max_pixels=lane.max_pixels)


def check_budget(gpu: GpuConfig, free_bytes: int, *, key: str) -> None:
    """Refuse what the GPU has no room for now; later it would fail in the middle of a request.

    Raises:
        ConfigError: the lane's two budgets are more than most of what is free.
    """
    wanted = gpu.pool_bytes + gpu.ort_bytes
    if wanted > SHARE_OF_FREE * free_bytes:
        raise ConfigError(
            f"{key}: pool_bytes + ort_bytes = {wanted} are more than {SHARE_OF_FREE:.0%} of the {free_bytes} bytes that are free "
            f"on GPU {gpu.device_id}: lower them, or end what else runs there"
        )


def provider_options(gpu: GpuConfig, stream_address: int) -> dict[str, str]:
    """Return onnxruntime's options for a session whose work goes to our compute stream."""
    assert stream_address, "0 would count as no stream"
    return {
        "device_id": str(gpu.device_id),
        "user_compute_stream": str(stream_address),
        "gpu_mem_limit": str(gpu.ort_bytes),
        # The default doubles what is asked for, and the limit is met with half of it unused.
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": gpu.conv_search.upper(),
        "cudnn_conv_use_max_workspace": "1",
        "use_tf32": "1" if gpu.precision == "fast" else "0",
    }


def count_nodes(assignments: Any) -> tuple[int, int]:
    """Return how many nodes run on the GPU and elsewhere, from ``get_provider_graph_assignment_info()``."""
    counts: Counter[bool] = Counter()
    for part in assignments:
        counts[part.ep_name == CUDA_PROVIDER] += len(part.get_nodes())
    return counts[True], counts[False]


def _open_session(lane: LaneConfig, device: CudaDevice) -> Any:
    """Open the model's session on the GPU, and do not believe that it is there: onnxruntime takes the CPU without a word."""
    path, gpu, key = Path(str(lane.model)), lane.gpu, f"lane.{lane.name}.device"
    onnxruntime = import_onnxruntime()
    # It prints what it does not find; the session tells it better. Older ones have their libraries found by the system.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(AttributeError):
        onnxruntime.preload_dlls()
    options = session_options(threads=lane.threads, spin=lane.spin is True)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if gpu.precision == "strict":
        options.use_deterministic_compute = True
    session = open_session(path, options, [(CUDA_PROVIDER, provider_options(gpu, device.stream_address))])
    session.disable_fallback()
    if session.get_providers()[0] != CUDA_PROVIDER:
        raise DeviceError(
            f"{key}: onnxruntime put the model on {session.get_providers()[0]}: `slotline check` says what is missing"
        )
    on_gpu, elsewhere = count_nodes(session.get_provider_graph_assignment_info())
    warning = judge_nodes(on_gpu, elsewhere, strict=gpu.strict_nodes, key=key)
    if warning:
        get_logger().warning("model_partly_on_cpu", lane=lane.name, reason=warning)
    return session


def _without_waiting() -> Any:
    """Return the options of a run that returns when its work is queued; who needs the results waits for our own mark."""
    options = import_onnxruntime().RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options
