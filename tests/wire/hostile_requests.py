"""Sound headers that ask for what no server gives: what checks 6 to 9 of the protocol refuse, and how each is made."""

from __future__ import annotations

import math
import struct

from headers import frame_tensor, make_route, make_tensor
from hostile_structure import FRAMED, GOOD, ID, Case, case, request

from schemas.encode import encode
from schemas.messages import (
    Body,
    Cancel,
    Control,
    ControlReply,
    Failure,
    Health,
    HealthReply,
    Metadata,
    MetadataReply,
    Welcome,
    write_message,
)
from schemas.params import ParamType
from schemas.status import Code, ControlOp, Flag, HealthScope, KeyPolicy, Kind, Place
from schemas.tables import BodyTag
from schemas.tensors import DType, pack_bytes

ESCAPES = "\x1b[2J\x00\r\n\u202e" + "x" * 30_000
LEASE = {"region": 1, "generation": 1, "frame": 0, "nbytes": 80}
TICK = make_tensor(name="features", shape=[1, 67], nbytes=268, inline_data=bytes(268))


def ask(body: Body) -> bytes:
    """Return the header of a question."""
    return write_message(body, (ID, 0, 0))


def one(**changes: object) -> bytes:
    """Return a request to the echo lane whose one tensor is changed."""
    return request(inputs=[make_tensor(**changes)])


def tick(**changes: object) -> bytes:
    """Return a request to the ticks model whose one tensor is changed."""
    return request(model="ticks", inputs=[TICK | changes])


def picture(**changes: object) -> bytes:
    """Return a request to the qc model whose one tensor, a picture, is changed."""
    ordinary = {"name": "image", "dtype": DType.ENCODED, "shape": [1]}
    return request(model="qc", inputs=[make_tensor(**ordinary | changes)])


def param(**changes: object) -> bytes:
    """Return a request with one parameter."""
    return request(params=[{"name": "p", "ptype": ParamType.INT} | changes])


def lease(**changes: object) -> bytes:
    """Return a request with a tensor in a leased frame."""
    return one(**{"place": Place.LEASE, "inline_data": None, "lease": LEASE} | changes)


K = Code.BAD_KIND
KINDS: dict[str, Case] = {
    "no kind": case(request(make_route(kind=0)), K, "kind"),
    "kind 255": case(request(make_route(kind=255)), K, "kind"),
    "a request that says it is a Hello": case(request(make_route(kind=Kind.HELLO)), K, "kind"),
    "a Hello that says it is a request": case(encode(make_route(), BodyTag.HELLO, {"client": "x"}), K, "kind"),
    "a Hello that says it is a reply": case(encode(make_route(kind=16), BodyTag.HELLO, {}), K, "kind"),
    "a result from a client": case(encode(make_route(kind=Kind.INFER_REPLY), BodyTag.INFER_OUT, {}), K, "kind"),
    "part of a result from a client": case(encode(make_route(kind=Kind.INFER_PART), BodyTag.INFER_OUT, {}), K, "kind"),
    "an error from a client": case(ask(Failure(Code.BUSY, "not me")), K, "kind"),
    "a Welcome from a client": case(ask(Welcome("slotline/9")), K, "kind"),
    "a HealthReply from a client": case(ask(HealthReply()), K, "kind"),
    "a MetadataReply from a client": case(ask(MetadataReply("echo")), K, "kind"),
    "a ControlReply from a client": case(ask(ControlReply()), K, "kind"),
    "credit that nobody asked for": case(encode(make_route(kind=Kind.CREDIT), BodyTag.NONE, {}), K, "kind"),
    "an order on the clients' socket": case(ask(Control(ControlOp.DRAIN)), K, "kind"),
    "a wrong kind and a wrong tensor": case(
        request(make_route(kind=Kind.HELLO), inputs=[make_tensor(dtype=99)]), K, "kind"
    ),
    "frames that are not there and a wrong tensor": case(
        request(make_route(payload_frames=3), inputs=[make_tensor(dtype=99)]), Code.BAD_FRAMES, "payload_frames"
    ),
    "a Cancel with a frame": case([ask(Cancel()), b"x"], Code.BAD_FRAMES, "payload_frames"),
}  # fmt: skip

TENSORS: dict[str, Case] = {
    "a product that is 0 in 64 bits": case(one(shape=[1 << 32, 1 << 32]), Code.TOO_LARGE, "x"),
    "a product that is 0 in 64 bits, by one large dimension": case(one(shape=[1 << 62, 4]), Code.TOO_LARGE, "x"),
    "a product that fits only in 64 bits": case(one(shape=[(1 << 61) + 5, 8], nbytes=160), Code.TOO_LARGE, "x"),
    "a huge dimension beside a zero": case(one(shape=[(1 << 63) - 1, 0]), Code.SIZE_MISMATCH, "x"),
    "a negative dimension": case(one(shape=[-1, 20]), Code.BAD_SHAPE, "x"),
    "two negative dimensions": case(one(shape=[-4, -5]), Code.BAD_SHAPE, "x"),
    "the least dimension": case(one(shape=[-(1 << 63)]), Code.BAD_SHAPE, "x"),
    "rank 9": case(one(shape=[1] * 8 + [20]), Code.BAD_SHAPE, "x"),
    "a picture that says it is two": case(one(dtype=DType.ENCODED, shape=[2]), Code.BAD_SHAPE, "x"),
    "a picture that says it is a scalar": case(one(dtype=DType.ENCODED, shape=None), Code.BAD_SHAPE, "x"),
    "no datatype": case(one(dtype=0), Code.BAD_DTYPE, "x"),
    "datatype 16": case(one(dtype=16), Code.BAD_DTYPE, "x"),
    "no place": case(one(place=0), Code.BAD_TENSOR, "x"),
    "place 4": case(one(place=4), Code.BAD_TENSOR, "x"),
    "a content type on numbers": case(one(content_type="image/png"), Code.BAD_TENSOR, "x"),
    "inline bytes of a tensor in a frame": case(
        [request(make_route(payload_frames=1), inputs=[make_tensor(place=Place.FRAME)]), bytes(80)], Code.BAD_TENSOR, "x"
    ),
    "a lease of a tensor that is inline": case(one(lease=LEASE), Code.BAD_TENSOR, "x"),
    "fewer bytes than its shape": case(one(nbytes=76, inline_data=bytes(76)), Code.SIZE_MISMATCH, "x"),
    "more bytes than its shape": case(one(nbytes=84, inline_data=bytes(84)), Code.SIZE_MISMATCH, "x"),
    "fewer inline bytes than it says": case(one(inline_data=bytes(79)), Code.SIZE_MISMATCH, "x"),
    "no inline bytes": case(one(inline_data=None), Code.SIZE_MISMATCH, "x"),
    "2^64 - 1 bytes": case(one(dtype=DType.BYTES, nbytes=(1 << 64) - 1), Code.TOO_LARGE, "x"),
    "4,097 bytes inline": case(one(dtype=DType.UINT8, shape=[4097], nbytes=4097, inline_data=bytes(4097)), Code.TOO_LARGE, "x"),
    "a frame that is too short": case([FRAMED, bytes(79)], Code.SIZE_MISMATCH, "x"),
    "a frame that is too long": case([FRAMED, bytes(81)], Code.SIZE_MISMATCH, "x"),
    "an empty frame": case([FRAMED, b""], Code.SIZE_MISMATCH, "x"),
    "a frame used twice": case(
        [request(make_route(payload_frames=1), inputs=[frame_tensor("x", 0), frame_tensor("y", 0)]), bytes(80)],
        Code.BAD_FRAMES, "inputs",
    ),
    "a frame left out": case(
        [request(make_route(payload_frames=2), inputs=[frame_tensor("x", 0), frame_tensor("y", 2)]), bytes(80), bytes(80)],
        Code.BAD_FRAMES, "inputs",
    ),
    "frame 65,535": case(
        [request(make_route(payload_frames=1), inputs=[frame_tensor("x", 65_535)]), bytes(80)], Code.BAD_FRAMES, "x"
    ),
    "two tensors of one name": case(request(inputs=[make_tensor(), make_tensor()]), Code.BAD_NAME, "x"),
    "a tensor with an empty name": case(one(name=""), Code.BAD_NAME, "inputs[0]"),
    "a leased tensor without a lease": case(lease(lease=None), Code.BAD_LEASE, "x"),
    "a lease of another size": case(lease(lease=LEASE | {"nbytes": 8}), Code.BAD_LEASE, "x"),
    "a lease": case(lease(), Code.NOT_SUPPORTED, "place"),
}  # fmt: skip

N = Code.NOT_SUPPORTED
P = Code.BAD_PARAM
MODELS: dict[str, Case] = {
    "a model with an empty name": case(request(model=""), Code.BAD_NAME, "model"),
    "a model that is not served": case(request(model="echo2"), Code.MODEL_NOT_FOUND, "model"),
    "a model named like a path": case(request(model="../../etc/passwd"), Code.MODEL_NOT_FOUND, "model"),
    "a model with escapes in 30 kB of name": case(request(model=ESCAPES), Code.MODEL_NOT_FOUND, "model"),
    "a version that is not served": case(request(version="2"), Code.VERSION_NOT_FOUND, "version"),
    "metadata of no model": case(ask(Metadata("none")), Code.MODEL_NOT_FOUND, "model"),
    "metadata of no version": case(ask(Metadata("echo", "7")), Code.VERSION_NOT_FOUND, "version"),
    "readiness of no model": case(ask(Health(HealthScope.MODEL_READY)), Code.MODEL_NOT_FOUND, "model"),
    "health of scope 9": case(encode(make_route(kind=Kind.HEALTH), BodyTag.HEALTH, {"scope": 9}), P, "scope"),
    "a client's name for it of 129 bytes": case(request(client_request_id="i" * 129), Code.TOO_LARGE, "client_request_id"),
    "a key policy that nobody knows": case(request(key_policy=4), P, "key_policy"),
    "the latest none": case(request(key_policy=KeyPolicy.LATEST_N), P, "latest_n"),
    "a key policy without a key": case(request(key_policy=KeyPolicy.LATEST_ONLY), P, "key"),
    "a number of latest with another policy": case(request(key_policy=KeyPolicy.ORDERED, latest_n=2), P, "latest_n"),
    "more latest than a lane holds": case(request(key_policy=KeyPolicy.LATEST_N, latest_n=65_535), P, "latest_n"),
    "a budget of 2^64 - 1": case(request(make_route(budget_us=(1 << 64) - 1)), P, "budget_us"),
    "a budget of a microsecond too much": case(request(make_route(budget_us=60_000_001)), P, "budget_us"),
    "a stream": case(request(make_route(flags=Flag.STREAM)), N, "flags"),
    "a reply into a lease": case(request(make_route(flags=Flag.REPLY_IN_LEASE)), N, "flags"),
    "a parameter without a name": case(param(name=""), P, "params"),
    "a parameter twice": case(request(params=[{"name": "p", "ptype": 2}] * 2), P, "p"),
    "a parameter of no type": case(param(ptype=0), P, "p"),
    "a parameter of type 5": case(param(ptype=5), P, "p"),
    "a Bool of 2": case(param(ptype=ParamType.BOOL, int_value=2), P, "p"),
    "a parameter that is not a number": case(param(ptype=ParamType.DOUBLE, double_value=math.nan), P, "p"),
    "an infinite parameter": case(param(ptype=ParamType.DOUBLE, double_value=-math.inf), P, "p"),
    "an output twice": case(request(outputs=[{"name": "x"}] * 2), Code.BAD_NAME, "x"),
    "an output without a name": case(request(outputs=[{"name": ""}]), Code.BAD_NAME, "outputs"),
    "an output that the model has not": case(
        request(model="ticks", inputs=[TICK], outputs=[{"name": "y"}]), Code.BAD_NAME, "outputs"
    ),
    "an output into a lease that is not named": case(request(outputs=[{"name": "x", "place": Place.LEASE}]), Code.BAD_LEASE, "x"),
    "an output with a lease that its place does not use": case(
        request(outputs=[{"name": "x", "place": Place.FRAME, "lease": LEASE}]), Code.BAD_LEASE, "x"
    ),
    "an output into a place that nobody knows": case(request(outputs=[{"name": "x", "place": 4}]), N, "x"),
    "an output into a lease": case(request(outputs=[{"name": "x", "place": Place.LEASE, "lease": LEASE}]), N, "place"),
    "an output with parameters": case(request(outputs=[{"name": "x", "params": [{"name": "p", "ptype": 2}]}]), N, "x"),
    "no inputs for a lane that takes any": case(request(inputs=None), Code.BAD_TENSOR, "inputs"),
    "nine inputs": case(request(inputs=[make_tensor(name=f"x{i}") for i in range(9)]), Code.BAD_TENSOR, "inputs"),
    "a name of 33 bytes": case(one(name="n" * 33), Code.BAD_NAME, "n" * 33),
    "a name that is a zero": case(one(name="\0"), Code.BAD_NAME, "\\x00"),
    "a name that ends in a zero": case(one(name="x\0"), Code.BAD_NAME, "x\\x00"),
    "no inputs for a model": case(request(model="ticks", inputs=None), Code.MISSING_INPUT, "features"),
    "an input of another name": case(tick(name="feature"), Code.MISSING_INPUT, "features"),
    "an input too many": case(request(model="ticks", inputs=[TICK, make_tensor(name="more")]), Code.BAD_NAME, "more"),
    "an input too many, its name full of escapes": case(
        request(model="ticks", inputs=[TICK, make_tensor(name=ESCAPES)]), Code.BAD_NAME,
        "\\x1b[2J\\x00\\x0d\\x0a\\u202e" + "x" * 36 + "...",
    ),
    "numbers of another datatype": case(tick(dtype=DType.INT32), Code.BAD_DTYPE, "features"),
    "a column less": case(tick(shape=[1, 66], nbytes=264, inline_data=bytes(264)), Code.BAD_SHAPE, "features"),
    "a rank less": case(tick(shape=[67]), Code.BAD_SHAPE, "features"),
    "no rows": case(tick(shape=[0, 67], nbytes=0, inline_data=b""), Code.BAD_SHAPE, "features"),
    "rows where the lane takes one": case(tick(shape=[2, 67], nbytes=536, inline_data=bytes(536)), Code.BAD_SHAPE, "features"),
    "more rows than the lane takes": case(
        request(model="rows", inputs=[TICK | {"shape": [3, 67], "nbytes": 804, "inline_data": bytes(804)}]),
        Code.TOO_LARGE, "features",
    ),
    "a picture of floats": case(picture(dtype=DType.FP32, shape=[4, 5]), Code.BAD_DTYPE, "image"),
    "a raw picture of one dimension": case(picture(dtype=DType.UINT8, shape=[80]), Code.BAD_SHAPE, "image"),
    "more bytes than a slot has": case(
        [request(make_route(payload_frames=1), inputs=[make_tensor(dtype=DType.UINT8, place=Place.FRAME, shape=[100_001],
                                                                   nbytes=100_001, inline_data=None)]), bytes(100_001)],
        Code.TOO_LARGE, "lane.echo.max_encoded_bytes",
    ),
}  # fmt: skip


def words(count: int, raw: bytes) -> bytes:
    """Return a request with a BYTES tensor of *count* elements that is *raw*."""
    return one(dtype=DType.BYTES, shape=[count], nbytes=len(raw), inline_data=raw)


def floats(dtype: DType, raw: bytes) -> bytes:
    """Return a request that wants finite numbers, with *raw*."""
    shape = [len(raw) // (8 if dtype == DType.FP64 else 4 if dtype == DType.FP32 else 2)]
    return request(finite=True, inputs=[make_tensor(dtype=dtype, shape=shape, nbytes=len(raw), inline_data=raw)])


CONTENTS: dict[str, Case] = {
    "an element that ends outside": case(words(2, struct.pack("<I", 0) + struct.pack("<I", 1)), Code.BAD_TENSOR, "x"),
    "an element of 2^32 - 1 bytes": case(words(1, struct.pack("<I", 0xFFFFFFFF) + b"abc"), Code.BAD_TENSOR, "x"),
    "bytes behind the last element": case(words(1, pack_bytes([b"a"]) + b"\0"), Code.SIZE_MISMATCH, "x"),
    "bytes without an element": case(words(0, b"abcd"), Code.SIZE_MISMATCH, "x"),
    "not a number where finite ones are wanted": case(floats(DType.FP32, struct.pack("<2f", 1, math.nan)), Code.NOT_FINITE, "x"),
    "an infinite half": case(floats(DType.FP16, b"\x00\x7c"), Code.NOT_FINITE, "x"),
    "an infinite BF16": case(floats(DType.BF16, b"\x80\xff"), Code.NOT_FINITE, "x"),
    "an infinite double": case(floats(DType.FP64, struct.pack("<d", math.inf)), Code.NOT_FINITE, "x"),
    "a wrong checksum": case(request(checksum=1), Code.BAD_CHECKSUM, "checksum"),
    "70,000 empty elements": case(
        [request(make_route(payload_frames=1), inputs=[make_tensor(dtype=DType.BYTES, place=Place.FRAME, shape=[10, 7_000],
                                                                   nbytes=280_000, inline_data=None)]), bytes(280_000)],
        Code.TOO_LARGE, "lane.echo.max_encoded_bytes",
    ),
}  # fmt: skip

# On the control socket.
CONTROL: dict[str, Case] = {
    "a request on the control socket": case(GOOD, K, "kind"),
    "an order that nobody knows": case(encode(make_route(kind=Kind.CONTROL), BodyTag.CONTROL, {"op": 99}), P, "op"),
    "no order": case(ask(Control()), N, "op"),
    "an order that is not served": case(ask(Control(ControlOp.UNLOAD, "echo")), N, "op"),
}
