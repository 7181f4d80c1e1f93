"""The memory limit of a process that decodes: a picture that needs more fails, the process and the machine do not."""

from __future__ import annotations

from schemas.config import MODEL_STAGE, Config, LaneConfig
from schemas.plan import Plan
from schemas.private_memory import limit_private_memory

_MIB = 1 << 20
# What libraries take beside the picture, and then, a pixel and an encoded byte, a third more than the most that was measured
# (lossless WebP with noise: 24 bytes a pixel and the file).
_BASE_BYTES = 64 * _MIB
_PIXEL_BYTES = 32
_ENCODED_BYTES = 2


def limit_memory(config: Config, plan: Plan, process: int) -> int:
    """Let this process, number *process* of the plan, take no more than its lanes need to decode; return how much, 0 = no limit.

    To be called once all is loaded: the limit counts from what the process has then.
    """
    more = 0
    for lane in plan.lanes:
        part = next((part for part in lane.cut if part.process == process), None)
        if part is not None:
            stages = [step.stage for step in lane.steps[part.first_step : part.end_step]]
            more = max(more, limit_bytes(config.lanes[lane.index], stages))
    if more:
        limit_private_memory(more)
    return more


def limit_bytes(lane: LaneConfig, stages: list[str]) -> int:
    """Return the limit that *lane* sets for a process that runs these of its *stages*, 0 = none."""
    if lane.decode.use != "image" or "decode" not in stages:
        return 0
    limit_mb = lane.decode.params["memory_limit_mb"]
    assert isinstance(limit_mb, int)
    if limit_mb:
        return limit_mb * _MIB
    if MODEL_STAGE in stages:
        return 0
    return _BASE_BYTES + _PIXEL_BYTES * lane.max_pixels + _ENCODED_BYTES * lane.max_encoded_bytes
