"""One message of each kind, and the files in ``golden/`` that hold their bytes.

Readers must understand the stored bytes for ever. Run this file to write those that are missing; it never overwrites one, because
a changed golden message is a changed wire.
"""

from __future__ import annotations

from pathlib import Path

from schemas.error_templates import ErrorTemplates
from schemas.messages import (
    Body,
    Cancel,
    Control,
    ControlReply,
    Health,
    HealthReply,
    Hello,
    Limits,
    Metadata,
    MetadataReply,
    Welcome,
    write_message,
)
from schemas.status import Code, ControlOp, Flag, HealthScope, KeyPolicy
from schemas.templates import ReplyTemplate, RequestOptions, RequestTemplate, TensorForm, pack_timing
from schemas.tensors import DType, TensorSpec

FOLDER = Path(__file__).parent / "golden"
IDS = (7, 1_234_567, 42)

TICK = bytes(range(80))
SCORES = bytes(range(100, 112))
TIMING = [(10, 20, 1), (11, 21, 2), (12, 22, 32), (13, 23, 1)]
PARAMS = {"threshold": 0.5, "top": 4, "boxes": True, "line": "käfer"}

BODIES: dict[str, Body] = {
    "cancel": Cancel("no longer needed"),
    "hello": Hello("golden/1.0", ("SLT1",), packed_replies=True),
    "welcome": Welcome("slotline/0.1.0", 0x1122334455667788, Limits(65_536, 1 << 26, 64, 256, 200_000, 60_000_000), "lease.sock"),
    "health": Health(HealthScope.MODEL_READY, "ticks", "1"),
    "health_reply": HealthReply(ok=True, state="serving", queued=3, in_flight=5),
    "metadata": Metadata("ticks"),
    "metadata_reply": MetadataReply(
        name="ticks",
        versions=("1", "2"),
        platform="onnxruntime",
        inputs=(TensorSpec("x", DType.FP32, (-1, 20)),),
        outputs=(TensorSpec("y", DType.FP32, (-1, 3)), TensorSpec("scalar", DType.INT64, ())),
        extensions=("keys",),
        max_batch=32,
        stages=("decode", "preprocess", "infer", "postprocess"),
    ),
    "control": Control(ControlOp.SET_WEIGHT, "ticks", "2", {"share": 0.1}),
    "control_reply": ControlReply(done=True, stats=PARAMS),
}


def tick_request() -> bytes:
    """Return a request with one inline tensor."""
    return RequestTemplate("ticks", [TensorForm("x", DType.FP32, (1, 20), 80, inline=True)]).header(
        7, 5_000, (TICK,), born_us=1_234_567, key=42
    )


def full_request() -> bytes:
    """Return a request that uses every field of our own clients: an encoded frame, a raw one and two inline tensors."""
    options = RequestOptions(
        version="2",
        outputs=("verdict", "boxes"),
        params=PARAMS,
        client_request_id="part 0815",
        key_policy=KeyPolicy.LATEST_N,
        latest_n=3,
        finite=True,
        checksum=0xDEADBEEF,
        priority=1,
    )
    tensors = [
        TensorForm("image", DType.ENCODED, (1,), 90_000, content_type="image/png"),
        TensorForm("mask", DType.UINT8, (1, 48, 64), 3_072),
        TensorForm("gain", DType.FP64, (), 8, inline=True),
        TensorForm("label", DType.BYTES, (2,), 14, inline=True),
    ]
    inline = (bytes(range(8)), b"\x03\0\0\0abc\x03\0\0\0def")
    return RequestTemplate("qc", tensors, options).header(8, 200_000, inline, key=9, flags=Flag.IDEMPOTENT | Flag.TRACE_SAMPLED)


def tick_reply() -> bytes:
    """Return a reply with one inline output."""
    template = ReplyTemplate("ticks", "1", [TensorForm("y", DType.FP32, (1, 3), 12, inline=True)], stages=4)
    return template.header(IDS, pack_timing(TIMING), 1, 250, (SCORES,))


def frame_reply() -> bytes:
    """Return a reply whose output is in a payload frame."""
    template = ReplyTemplate("qc", "3", [TensorForm("map", DType.FP32, (1, 6, 24, 24), 13_824)], stages=4)
    return template.header(IDS, pack_timing(TIMING), 0, 0)


def messages() -> dict[str, bytes]:
    """Return the header of each golden message by name, as the writers make it now."""
    error = ErrorTemplates().header(
        IDS, Code.BUSY, "backlog: expected at most 256, got 257", retry_after_us=5_000, stage="broker", field="backlog"
    )
    made = {
        "tick_request": tick_request(),
        "full_request": full_request(),
        "tick_reply": tick_reply(),
        "frame_reply": frame_reply(),
        "error": error,
    }
    return made | {name: write_message(body, IDS) for name, body in BODIES.items()}


def stored() -> dict[str, bytes]:
    """Return the stored bytes of each golden message by name."""
    return {path.stem: path.read_bytes() for path in sorted(FOLDER.glob("*.bin"))}


if __name__ == "__main__":
    for name, header in messages().items():
        if not (FOLDER / f"{name}.bin").exists():
            (FOLDER / f"{name}.bin").write_bytes(header)
