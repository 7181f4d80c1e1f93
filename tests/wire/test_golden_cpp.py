"""The stored messages that generated C++ code made: of every kind, read here to the values of our own ones, and by C++ too."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fields_text import Checker, fields_text
from golden_messages import FOLDER, IDS, stored

from broker.marks import release_header
from schemas import layout as reading
from schemas.fb.Infer import Infer
from schemas.fb.Message import Message
from schemas.layout import Layout, read_layout
from schemas.messages import read_message
from schemas.status import Flag, Kind, Place
from schemas.tensors import DType
from schemas.verify import verify
from schemas.wire import ROUTE, TRACE_CONTEXT, Route

MADE_HERE = stored()
MADE_BY_CPP = {path.stem: path.read_bytes() for path in sorted((FOLDER / "cpp").glob("*.bin"))}
SUMS = FOLDER / "SHA256SUMS"


def route_of(name: str) -> Route:
    """Return the Route of a stored message."""
    return Route._make(ROUTE.unpack_from(MADE_BY_CPP[name], verify(MADE_BY_CPP[name]).values[0]))


def infer_of(name: str) -> Infer:
    """Return the body of a stored request, by the generated accessors."""
    body = Message.GetRootAs(MADE_BY_CPP[name]).Body()
    infer = Infer()
    infer.Init(body.Bytes, body.Pos)
    return infer


def test_no_stored_message_has_changed() -> None:
    """Each has the digest with which it was stored; a new one is added to the list (sha256sum in tests/wire/golden)."""
    kept = dict(reversed(line.split("  ")) for line in SUMS.read_text().splitlines())
    found = {path.relative_to(FOLDER).as_posix(): path for path in (*FOLDER.rglob("*.bin"), *FOLDER.glob("*.fbs"))}

    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()} == kept


def test_there_is_one_of_every_kind() -> None:
    """Also of those that nobody sends yet."""
    assert {Kind(route_of(name).kind) for name in MADE_BY_CPP} == set(Kind) - {Kind.UNSET}


@pytest.mark.parametrize("name", MADE_HERE)
def test_it_says_what_our_own_one_says(name: str) -> None:
    """Every field, though the bytes lie elsewhere."""
    assert fields_text(MADE_BY_CPP[name]) == fields_text(MADE_HERE[name])


@pytest.mark.parametrize("name", MADE_HERE)
def test_our_reader_makes_the_same_of_it(name: str) -> None:
    """Route and body; of tensors all but where they lie."""
    (route, body), (own_route, own_body) = read_message(MADE_BY_CPP[name]), read_message(MADE_HERE[name])

    assert route == own_route
    if not isinstance(body, Layout):
        assert body == own_body
        return
    assert isinstance(own_body, Layout)
    for tensor, own in zip(body.tensors, own_body.tensors, strict=True):
        assert (tensor.name, tensor.dtype, tensor.shape, tensor.nbytes) == (own.name, own.dtype, own.shape, own.nbytes)
        assert inline_bytes(MADE_BY_CPP[name], tensor) == inline_bytes(MADE_HERE[name], own)


def inline_bytes(header: bytes, tensor: reading.WireTensor) -> bytes:
    """Return the bytes of a tensor in the header, which are aligned for any datatype."""
    if tensor.place != Place.INLINE:
        return b""
    assert tensor.inline_at % 16 == 0
    return header[tensor.inline_at : tensor.inline_at + tensor.nbytes]


def test_credit_has_a_route_alone() -> None:
    """How many more parts are wanted stands in it."""
    route = route_of("credit")

    assert (route.request_id, route.born_us, route.key) == IDS
    assert (route.kind, route.seq) == (Kind.CREDIT, 5)
    assert Message.GetRootAs(MADE_BY_CPP["credit"]).Body() is None


def test_a_release_has_a_route_alone() -> None:
    """It names the request whose frames are free; ours is the same message."""
    route = route_of("release")

    assert (route.request_id, route.born_us, route.key) == IDS
    assert (route.kind, route.flags) == (Kind.RELEASE, Flag.FINAL | Flag.RELEASED)
    assert read_message(release_header(IDS)) == (route, None)


def test_a_part_of_a_stream_is_not_final() -> None:
    """It has a number."""
    route = route_of("infer_part")

    assert (route.kind, route.seq, route.flags & Flag.FINAL) == (Kind.INFER_PART, 3, 0)


def test_a_leased_tensor_and_a_leased_output_name_their_frames() -> None:
    """Region, generation, frame and size of each."""
    infer = infer_of("lease_request")
    tensor, output = infer.Inputs(0), infer.Outputs(0)
    leases = [(lease.Region(), lease.Generation(), lease.Frame(), lease.Nbytes()) for lease in (tensor.Lease(), output.Lease())]

    assert (tensor.Place(), output.Place()) == (Place.LEASE, Place.LEASE)
    assert leases == [(3, 17, 2, 307_200), (3, 18, 4, 13_824)]
    assert [tensor.Shape(index) for index in range(tensor.ShapeLength())] == [1, 480, 640]
    assert (output.Name(), output.Params(0).Name(), output.Params(0).DoubleValue()) == (b"map", b"threshold", 0.5)
    assert route_of("lease_request").flags == Flag.IDEMPOTENT | Flag.REPLY_IN_LEASE


def test_a_traced_request_has_its_trace() -> None:
    """In the order of W3C's traceparent, with its state beside it."""
    header = MADE_BY_CPP["traced_request"]
    at = verify(header).values[1]

    assert TRACE_CONTEXT.unpack_from(header, at)[:4] == (0x0102030405060708, 0x1112131415161718, 0x2122232425262728, 1)
    assert Message.GetRootAs(header).Tracestate() == b"vendor=a"
    assert read_layout(header).tensors[0].dtype == DType.BF16
    assert route_of("traced_request").priority == 255


def test_cpp_reads_the_same_fields(cpp_fields: Checker) -> None:
    """Of what C++ made, and of what we made."""
    headers = [*MADE_BY_CPP.values(), *MADE_HERE.values()]

    assert cpp_fields(headers) == [fields_text(header) for header in headers]


def test_the_program_that_made_them_still_says_the_same(build_cpp: Callable[[str], Path], tmp_path: Path) -> None:
    """In whatever bytes this version of FlatBuffers lays out."""
    subprocess.run([build_cpp("write_golden.cpp"), tmp_path], check=True, timeout=60)
    made = {path.stem: path.read_bytes() for path in tmp_path.glob("*.bin")}

    assert {name: fields_text(header) for name, header in made.items()} == {
        name: fields_text(header) for name, header in MADE_BY_CPP.items()
    }
