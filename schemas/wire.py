"""Byte-level facts of a message: its fixed structs and its limits. Reading is in ``layout.py`` and ``messages.py``, writing in
``templates.py`` and ``encode.py``; the tables of ``infer.fbs`` are in ``tables.py``.

One message is ``[""]? [header] [payload 0] ... [payload n-1]``: the empty frame only when the peer sends one, the header one
FlatBuffer ``Message``, the payloads raw tensor bytes, little-endian, C order.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

IDENTIFIER = b"SLT1"

# A header holds names, shapes and small inline tensors. 64 KiB has room for 15 full ones, and bounds the cost of one check.
MAX_HEADER_BYTES = 65_536
# Frames of one message, the header not counted. ZeroMQ has no limit of its own, and each frame costs the reader 1.3 us.
MAX_FRAMES = 64
# Headers in one Packed message: enough that the cost of a send is shared, few enough that one message is one short turn.
MAX_PACKED = 64
# Up to here copying a tensor into the header is cheaper than a second frame.
MAX_INLINE_BYTES = 4_096
# Tensors of one request or reply; a tensor needs a frame or inline space, so more than MAX_FRAMES is of no use.
MAX_TENSORS = 64
# Parameters of a request, names in a list: a guard on the length of loops, far above any real use.
MAX_LIST = 64
# Statistics of a control reply: about 20 per lane.
MAX_STATS = 1_024
# The texts that are logged or echoed: enough for a UUID with a prefix, and for two lines to a person.
MAX_CLIENT_ID_BYTES = 128
MAX_MESSAGE_BYTES = 512

# Route, 56 bytes, little-endian, at an offset divisible by 8 inside the header
#   0 request_id u64 | 8 budget_us u64 | 16 born_us u64 | 24 key u64 | 32 seq u32 | 36 reserved0 u32
#   40 flags u16 | 42 payload_frames u16 | 44 reserved1 u16 | 46 kind u8 | 47 priority u8 | 48 reserved2 u64
# The reserved fields lie in pairs of one size so that no padding is left: every byte has a name.
ROUTE = struct.Struct("<4Q2I3H2BQ")

# TraceContext, 32 bytes, align 8: the W3C traceparent
#   0 trace_hi u64 | 8 trace_lo u64 | 16 span_id u64 | 24 trace_flags u8 | 25 version u8 | 26 pad0 u16 | 28 pad1 u32
TRACE_CONTEXT = struct.Struct("<3Q2BHI")

# StageTime, 12 bytes, one per stage of a reply: queue_us u32 | run_us u32 | batch u32
STAGE_TIME = struct.Struct("<3I")


class Route(NamedTuple):
    """What the broker reads of each message. Times in microseconds; the field names are those of ``infer.fbs``.

    budget_us: time left, 0 = the lane's default. born_us: the sender's own clock, echoed unchanged. key: 0 = none.
    payload_frames: frames after the header. priority: 0 = the lane's default level, 1 = highest.
    """

    request_id: int
    budget_us: int
    born_us: int
    key: int
    seq: int
    reserved0: int
    flags: int
    payload_frames: int
    reserved1: int
    kind: int
    priority: int
    reserved2: int


class Trace(NamedTuple):
    """A W3C trace context as the header carries it: the 128-bit trace id in two halves."""

    trace_hi: int
    trace_lo: int
    span_id: int
    trace_flags: int
    version: int
    pad0: int
    pad1: int


# What a request asks to have echoed in each of its replies: (request_id, born_us, key).
Ids = tuple[int, int, int]
