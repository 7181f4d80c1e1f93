"""The [lane.NAME.gpu] table: what a lane's model takes of a GPU, and how exactly it computes there. It counts only on a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.config_rules import GIB, MIB, about, one_of, whole, yes_no


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """A lane's share of a GPU."""

    device_id: int = field(
        default=0, metadata=about(whole(0, 63), "Which GPU, as CUDA counts them; one process per GPU serves a lane best.")
    )
    pool_bytes: int = field(
        default=256 * MIB,
        metadata=about(
            whole(16 * MIB, 1024 * GIB),
            "Most that the lane's own buffers take on the GPU; batches that need more are OUT_OF_MEMORY.",
            unit="bytes",
        ),
    )
    ort_bytes: int = field(
        default=2 * GIB,
        metadata=about(
            whole(64 * MIB, 1024 * GIB),
            "Most that onnxruntime's arena takes for weights and intermediate values; what cuDNN and cuBLAS need comes on top.",
            unit="bytes",
        ),
    )
    flights: int = field(
        default=2,
        metadata=about(
            whole(1, 4),
            "Batches on their way at once: 2 hide copies behind the model, 3 where outputs are large.",
            unit="batches",
        ),
    )
    precision: str = field(
        default="fast",
        metadata=about(
            one_of("fast", "strict"),
            "fast: TF32 for float32, about 1e-3 off the CPU; strict: float32 throughout, and the same bits for the same batch.",
        ),
    )
    conv_search: str = field(
        default="heuristic",
        metadata=about(
            one_of("heuristic", "exhaustive", "default"),
            "How cuDNN's algorithms are chosen at start, for each batch size; exhaustive takes seconds and pays for some models.",
        ),
    )
    strict_nodes: bool = field(
        default=False,
        metadata=about(yes_no(), "Whether a model of which a part runs on the CPU is refused; else it is a warning."),
    )
