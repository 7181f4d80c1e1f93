"""The config as frozen values: every field with its rule, unit and the reason for its default. Reading is in config_read.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schemas.config_curve import CurveConfig
from schemas.config_gpu import GpuConfig
from schemas.config_leases import LeaseConfig
from schemas.config_rules import GIB, KIB, MIB, NAME, Rule, about, number, one_of, text, whole, yes_no, yes_no_auto
from schemas.config_stage import StageConfig, lane_stages

ENDPOINT = text(r"(ipc|tcp)://.+", "ipc://PATH or tcp://ADDRESS:PORT")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The broker's own limits and endpoints."""

    endpoint: str = field(
        default="ipc://run/slotline.ipc",
        metadata=about(
            ENDPOINT,
            "Where clients connect. ipc by default: fastest, and file rights guard it. Its path is relative to the config file.",
        ),
    )
    control: str | None = field(
        default=None,
        metadata=about(
            ENDPOINT,
            "Where health, metadata and statistics are asked, apart from requests so that overload does not hide them.",
            default="ipc: endpoint + .control; tcp: chosen at start",
        ),
    )
    insecure: bool = field(
        default=False,
        metadata=about(
            yes_no(),
            "Must be true to bind a TCP address that other machines reach without [curve]: nothing there is authenticated.",
        ),
    )
    max_clients: int = field(
        default=1024,
        metadata=about(
            whole(1, 65536),
            "Remembered at once; past it idle ones are forgotten, which costs them only their Hello's wishes.",
            unit="connections",
        ),
    )
    max_in_flight: int = field(
        default=4096,
        metadata=about(
            whole(1, 1_000_000),
            "Unanswered requests of one client; above it BUSY. Far above what a good client needs, so it stops only runaways.",
            unit="requests",
        ),
    )
    drain_s: float = field(
        default=10.0,
        metadata=about(
            number(0, 3600), "After SIGTERM, time to finish what was accepted; container hosts wait 10 s or more.", unit="seconds"
        ),
    )
    max_budget_us: int = field(
        default=60_000_000,
        metadata=about(
            whole(1, 3_600_000_000), "Longest budget a request may ask for; a longer one is BAD_PARAM.", unit="microseconds"
        ),
    )
    max_message_bytes: int = field(
        default=64 * MIB,
        metadata=about(
            whole(64 * KIB, GIB), "Largest message, all frames together: 24 MiB frames of today's cameras and room.", unit="bytes"
        ),
    )
    outbox_bytes: int = field(
        default=16 * MIB,
        metadata=about(
            whole(64 * KIB, GIB),
            "Replies kept for a client that does not read; beyond it, it is cut off and they count as undeliverable.",
            unit="bytes",
        ),
    )
    memory_limit_mb: int = field(
        default=0,
        metadata=about(whole(0, 1_048_576), "What the broker may take beyond its start. 0: from its other limits.", unit="MiB"),
    )
    heartbeat_ms: int = field(
        default=1000,
        metadata=about(whole(0, 60_000), "Interval of pings to silent clients, 0 = none.", unit="milliseconds"),
    )
    heartbeat_timeout_ms: int = field(
        default=10_000,
        metadata=about(
            whole(1, 600_000),
            "Silence after which a client is gone. Long, because a client that was merely frozen for 1.5 s lost a reply.",
            unit="milliseconds",
        ),
    )
    log_level: str = field(
        default="info",
        metadata=about(one_of("debug", "info", "warning", "error"), "Least level of log lines."),
    )


@dataclass(frozen=True, slots=True)
class LaneConfig:
    """One model version with its slots and stage processes; *name* is the model name on the wire."""

    name: str
    model: Path | None = field(
        default=None,
        metadata=about(
            text(r".+", "a path"),
            "ONNX file, relative to the config file. Without it the lane has no infer stage (an echo, or pure Python).",
            default="none",
        ),
    )
    version: str = field(default="1", metadata=about(NAME, "Model version on the wire; a request without one gets this."))
    slots: int = field(
        default=32,
        metadata=about(
            whole(1, 65536),
            "Each holds one request inside the lane. Bounds memory: bytes per slot x slots are taken at start.",
            unit="slots",
        ),
    )
    max_encoded_bytes: int = field(
        default=2_000_000,
        metadata=about(
            whole(64, GIB),
            "A request's whole input in its slot; larger is TooLarge. 2 MB holds a 1080p JPEG of any quality.",
            unit="bytes",
        ),
    )
    max_pixels: int = field(
        default=1_000_000,
        metadata=about(
            whole(64, 400_000_000),
            "Largest decoded picture, width x height; checked in its header before decoding.",
            unit="pixels",
        ),
    )
    max_rows: int = field(default=1, metadata=about(whole(1, 65536), "Most rows (inferences) of one request.", unit="rows"))
    max_output_bytes: int = field(
        default=1_048_576,
        metadata=about(
            whole(64, GIB),
            "Room for a model's outputs whose size is not fixed by the model; larger is OutputTooLarge.",
            unit="bytes",
        ),
    )
    max_batch_size: int = field(
        default=8,
        metadata=about(
            whole(1, 65536), "Most rows of one model run. On a CPU larger batches only pay for tiny models.", unit="rows"
        ),
    )
    max_queue_delay_microseconds: int = field(
        default=0,
        metadata=about(
            whole(0, 10_000_000),
            "How long a partial batch may wait for more; 0 because under load batches fill by themselves.",
            unit="microseconds",
        ),
    )
    backlog: int = field(
        default=256,
        metadata=about(whole(1, 1_000_000), "Waiting in the broker; beyond it BUSY at once.", unit="requests"),
    )
    backlog_bytes: int = field(
        default=64 * MIB,
        metadata=about(
            whole(64 * KIB, 64 * GIB), "Payload bytes of the backlog: bounds memory when requests are large.", unit="bytes"
        ),
    )
    default_budget_us: int = field(
        default=1_000_000,
        metadata=about(
            whole(1, 3_600_000_000),
            "Budget of a request that names none: waiting, stages and reply together.",
            unit="microseconds",
        ),
    )
    max_age_us: int = field(
        default=0,
        metadata=about(
            whole(0, 3_600_000_000),
            "Older than that by its born_us (monotonic clock, so ipc only), a request is not begun. 0: no limit.",
            unit="microseconds",
        ),
    )
    inside_us: int | None = field(
        default=None,
        metadata=about(
            whole(1, 60_000_000),
            "Work that may be dispatched at once; more waits in the broker, where order is decided.",
            unit="microseconds",
            default="the larger of 2 batches and 1000",
        ),
    )
    idempotent: bool = field(
        default=True,
        metadata=about(
            yes_no(),
            "Whether a request may run twice after a process died. Ours may; a user's function may act on the world.",
            default="true, or false when a stage uses a user's function",
        ),
    )
    hang_limit_ms: int = field(
        default=1000,
        metadata=about(
            whole(1, 3_600_000),
            "A process in one call for longer than this, 1 s, and 10 warm-up runs is killed.",
            unit="milliseconds",
        ),
    )
    threads: int = field(
        default=1,
        metadata=about(
            whole(1, 256), "Inside one run of onnxruntime; 1 because replicas use cores better than threads.", unit="threads"
        ),
    )
    spin: bool | str = field(
        default=False,
        metadata=about(
            yes_no_auto(),
            "Look for messages without sleeping: an idle lane answers sooner, for a core. auto: if every process can have one.",
        ),
    )
    device: str = field(
        default="cpu",
        metadata=about(one_of("auto", "cpu", "cuda"), "Where the model runs; auto: on a GPU where one can be used."),
    )
    processes: tuple[tuple[str, ...], ...] = field(
        default=(),
        metadata=about(
            Rule("a list of lists of stage names", lambda value: value),
            "The cut: which stages share a process. One process by default: a process hop costs 20-50 us.",
            default="all stages in one process",
        ),
    )
    replicas: Mapping[str, int] = field(
        default_factory=dict,
        metadata=about(
            Rule("a table such as { infer = 2 }", lambda value: value),
            "How many run of the process that has the named stage, 1 to 64.",
            unit="processes",
            default="1 each",
        ),
    )
    workers: str | None = field(
        default=None,
        metadata=about(
            NAME,
            "Lanes that name the same workers are served by the same processes; their processes and replicas must be equal.",
            default="none: processes of its own",
        ),
    )
    gpu: GpuConfig = field(default=GpuConfig())
    decode: StageConfig = field(default=StageConfig("tensor"))
    preprocess: StageConfig = field(default=StageConfig("none"))
    postprocess: StageConfig = field(default=StageConfig("none"))

    @property
    def stages(self) -> tuple[str, ...]:
        """The lane's stages in order; a lane without a model has no infer stage."""
        return lane_stages(self.model is not None)

    @property
    def process_replicas(self) -> tuple[int, ...]:
        """How many copies run of each entry of ``processes``."""
        return tuple(max((self.replicas.get(stage, 1) for stage in process), default=1) for process in self.processes)

    def stage(self, name: str) -> StageConfig:
        """Return the table of the stage *name*; the infer stage has none.

        Raises:
            KeyError: *name* is not decode, preprocess or postprocess.
        """
        return {"decode": self.decode, "preprocess": self.preprocess, "postprocess": self.postprocess}[name]


@dataclass(frozen=True, slots=True)
class Config:
    """A whole config file, checked. *source* names it in messages; relative paths and user modules start at *base*."""

    server: ServerConfig
    lanes: tuple[LaneConfig, ...]
    source: str
    base: Path
    curve: CurveConfig | None = None
    leases: LeaseConfig = field(default_factory=LeaseConfig)
