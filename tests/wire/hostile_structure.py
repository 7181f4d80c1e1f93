"""Messages whose frames or whose header are no message: what checks 1 to 5 of the protocol refuse, and how each is made."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from door import MAX_MESSAGE_BYTES
from headers import frame_tensor, make_request, make_route, make_tensor

from schemas.encode import encode
from schemas.messages import Hello, write_message
from schemas.status import Code, Flag
from schemas.tables import BodyTag
from schemas.wire import MAX_FRAMES, MAX_HEADER_BYTES, MAX_PACKED, Route

Frames = list[bytes]
ID = 7


@dataclass(frozen=True, slots=True)
class Case:
    """One hostile message and its one answer. *request_id*: 0 when no Route can be read. *field*: what the answer names."""

    frames: Frames
    code: Code
    field: str
    request_id: int = ID


def request(route: Route | None = None, **changes: object) -> bytes:
    """Return the header of a good request to the echo lane, with *changes*."""
    return make_request(route, **{"model": "echo"} | changes)


def packed(request_id: int) -> bytes:
    """Return one header of a Packed message."""
    return request(make_route(request_id=request_id, flags=Flag.PACKED))


GOOD = request()
FRAMED = request(make_route(payload_frames=1), inputs=[frame_tensor("x", 0)])


# --- changes to the bytes of a good header ---------------------------------------------------------------------------------


def put(header: bytes, at: int, code: str, value: int) -> bytes:
    """Return *header* with one number overwritten."""
    raw = struct.pack("<" + code, value)
    return header[:at] + raw + header[at + len(raw) :]


def root(header: bytes) -> int:
    """Return where the Message is."""
    (at,) = struct.unpack_from("<I", header)
    return int(at)


def vtable(header: bytes, table: int) -> int:
    """Return where the vtable of the table at *table* is."""
    return table - int(struct.unpack_from("<i", header, table)[0])


def slot(header: bytes, table: int, number: int) -> int:
    """Return where the offset of field *number* is in the vtable."""
    return vtable(header, table) + 4 + 2 * number


def field_at(header: bytes, table: int, number: int) -> int:
    """Return where field *number* of the table is."""
    return table + int(struct.unpack_from("<H", header, slot(header, table, number))[0])


def follow(header: bytes, at: int) -> int:
    """Return where the offset at *at* points."""
    return at + int(struct.unpack_from("<I", header, at)[0])


def body(header: bytes) -> int:
    """Return where the body of the Message is."""
    return follow(header, field_at(header, root(header), 4))


def tensors(header: bytes) -> int:
    """Return where the vector of a request's inputs is."""
    return follow(header, field_at(header, body(header), 2))


def tensor(header: bytes) -> int:
    """Return where the first input is."""
    return follow(header, tensors(header) + 4)


def model(header: bytes) -> int:
    """Return where the length of the model's name is."""
    return follow(header, field_at(header, body(header), 0))


def _bomb() -> bytes:
    """Return a header whose 64 requested outputs are one and the same, with 64 params that are one and the same."""
    outputs = [{"name": f"o{i}", "params": [{"name": f"p{j}"} for j in range(64)]} for i in range(2)]
    header = request(outputs=outputs)
    vector = follow(header, field_at(header, body(header), 3))
    params = follow(header, field_at(header, follow(header, vector + 4), 3))
    first = follow(header, params + 4)
    for at in range(params + 4, params + 4 + 4 * 64, 4):
        header = put(header, at, "I", first - at)
    # The name of that one parameter is now the longest string that there is: the rest of the header.
    name = follow(header, field_at(header, first, 0))
    return put(header, name, "I", len(header) - name - 5)


def _overlapping() -> bytes:
    """Return a header whose inline bytes are its shape too: they could change what it says, unseen by a cache."""
    inline, shape = field_at(GOOD, tensor(GOOD), 6), field_at(GOOD, tensor(GOOD), 3)
    return put(GOOD, inline, "I", follow(GOOD, shape) - inline)


def _welcome_as_request() -> bytes:
    """Return a Welcome whose union says that it is an Infer."""
    header = encode(make_route(), BodyTag.WELCOME, {"epoch": 1})
    return put(header, field_at(header, root(header), 3), "B", BodyTag.INFER)


def case(make: bytes | Frames, code: Code, field: str, request_id: int = ID) -> Case:
    """Return the case of one header, or of some frames."""
    return Case([make] if isinstance(make, bytes) else make, code, field, request_id)


H = Code.BAD_HEADER
F = Code.BAD_FRAMES

FRAMES: dict[str, Case] = {
    "an empty message": case(b"", H, "header", 0),
    "only a delimiter and an empty header": case([b"", b""], H, "header", 0),
    "two delimiters": case([b"", b"", GOOD], H, "header", 0),
    "65 payload frames": case([FRAMED] + [bytes(80)] * (MAX_FRAMES + 1), F, "frames"),
    "a thousand payload frames": case([FRAMED] + [b""] * 1000, F, "frames"),
    "65 payload frames behind a header that is too long": case([bytes(MAX_HEADER_BYTES + 1)] + [b""] * 65, F, "frames", 0),
    "frames of more bytes than a message may have": case([FRAMED] + [bytes(MAX_MESSAGE_BYTES - 1)] * 2, Code.TOO_LARGE, "frames"),
    "65 packed headers": case([packed(i) for i in range(ID, ID + MAX_PACKED + 1)], F, "packed"),
    "packed headers of more bytes than a message may have": case(
        [packed(ID), *[packed(ID + 1).ljust(MAX_HEADER_BYTES, b"\0")] * 20], Code.TOO_LARGE, "packed"
    ),
    "payload frames behind a packed header": case(
        [request(make_route(flags=Flag.PACKED, payload_frames=1), inputs=[frame_tensor("x", 0)])], F, "payload_frames"
    ),
    "one frame more than the Route says": case([FRAMED, bytes(80), bytes(80)], F, "payload_frames"),
    "one frame less than the Route says": case([FRAMED], F, "payload_frames"),
    "a Route that says 65,535 frames": case(request(make_route(payload_frames=65_535)), F, "payload_frames"),
    "a frame that no tensor uses": case([request(make_route(payload_frames=1)), bytes(80)], F, "payload_frames"),
    "frames behind a question": case([write_message(Hello("x"), (ID, 0, 0)), b"x"], F, "payload_frames"),
}  # fmt: skip

STRUCTURE: dict[str, Case] = {
    "a header of 64 KiB and a byte": case(GOOD.ljust(MAX_HEADER_BYTES + 1, b"\0"), Code.TOO_LARGE, "header", 0),
    "a header of 11 bytes": case(GOOD[:11], H, "header", 0),
    "a header of zeros": case(bytes(100), Code.UNSUPPORTED_VERSION, "identifier", 0),
    "the identifier of a later protocol": case(GOOD[:4] + b"SLT2" + GOOD[8:], Code.UNSUPPORTED_VERSION, "identifier", 0),
    "an identifier in small letters": case(GOOD[:4] + b"slt1" + GOOD[8:], Code.UNSUPPORTED_VERSION, "identifier", 0),
    "a root outside the header": case(put(GOOD, 0, "I", len(GOOD)), H, "header", 0),
    "a root at its own offset": case(put(GOOD, 0, "I", 0), H, "header", 0),
    "a root that is not aligned": case(put(GOOD, 0, "I", root(GOOD) + 1), H, "header", 0),
    "a root at 2^32 - 4": case(put(GOOD, 0, "I", 0xFFFFFFFC), H, "header", 0),
    "a vtable before the header": case(put(GOOD, root(GOOD), "i", 0x7FFFFFFF), H, "header", 0),
    "a vtable behind the header": case(put(GOOD, root(GOOD), "i", -len(GOOD)), H, "header", 0),
    "a vtable of 65,534 bytes": case(put(GOOD, vtable(GOOD, root(GOOD)), "H", 65_534), H, "header", 0),
    "a vtable of odd size": case(put(GOOD, vtable(GOOD, root(GOOD)), "H", 13), H, "header", 0),
    "a table larger than the header": case(put(GOOD, vtable(GOOD, root(GOOD)) + 2, "H", 65_532), H, "header", 0),
    "no Route": case(put(GOOD, slot(GOOD, root(GOOD), 0), "H", 0), H, "route", 0),
    "a Route across the end of its table": case(put(GOOD, slot(GOOD, root(GOOD), 0), "H", 60), H, "route", 0),
    "a body without its type": case(put(GOOD, slot(GOOD, root(GOOD), 3), "H", 0), H, "body"),
    "a type without its body": case(put(GOOD, slot(GOOD, root(GOOD), 4), "H", 0), H, "body"),
    "a body of a type that nobody knows": case(put(GOOD, field_at(GOOD, root(GOOD), 3), "B", 13), H, "body"),
    "a body of type 255": case(put(GOOD, field_at(GOOD, root(GOOD), 3), "B", 255), H, "body"),
    "a Welcome that says it is a request": case(_welcome_as_request(), H, "body.version"),
    "no model": case(put(GOOD, slot(GOOD, body(GOOD), 0), "H", 0), H, "body.model"),
    "a model's name of 2^31 bytes": case(put(GOOD, model(GOOD), "I", 1 << 31), H, "body.model"),
    "a model's name to the last byte": case(put(GOOD, model(GOOD), "I", len(GOOD) - model(GOOD) - 4), H, "body.model"),
    "a model's name without its zero": case(put(GOOD, model(GOOD), "I", 3), H, "body.model"),
    "a model's name that is not UTF-8": case(put(GOOD, model(GOOD) + 4, "B", 0xFF), H, "body.model"),
    "2^30 tensors": case(put(GOOD, tensors(GOOD), "I", 1 << 30), H, "body.inputs"),
    "65 tensors": case(request(inputs=[make_tensor(name=f"x{i}") for i in range(65)]), H, "body.inputs"),
    "65 parameters": case(request(params=[{"name": f"p{i}", "ptype": 2} for i in range(65)]), H, "body.params"),
    "65 dimensions": case(request(inputs=[make_tensor(shape=[1] * 65)]), H, "body.inputs[0].shape"),
    "a tensor without a name": case(put(GOOD, slot(GOOD, tensor(GOOD), 0), "H", 0), H, "body.inputs[0].name"),
    "a tensor that is the vector it is in": case(put(GOOD, tensors(GOOD) + 4, "i", -4), H, "body.inputs[0]"),
    "inline bytes past the end": case(
        put(GOOD, follow(GOOD, field_at(GOOD, tensor(GOOD), 6)), "I", 4096), H, "body.inputs[0].inline_data"
    ),
    "parts used a thousand times": case(_bomb(), H, "body.outputs[0].params[0].name"),
    "inline bytes that are structure too": case(_overlapping(), H, "header"),
    "a header that ends in its Route": case(GOOD[:80], H, "header", 0),
    "a header that ends in the middle": case(GOOD[: len(GOOD) // 2], H, "body.model"),
    "a header without its last word": case(GOOD[:-8], H, "body.model"),
}
