"""A patched template is byte for byte what the encoder would have written."""

from __future__ import annotations

from array import array

import pytest

from schemas.layout import read_backlog_us, read_layout, read_retries, read_route, read_timing
from schemas.status import Code, Flag, KeyPolicy, Kind, Place, RequestError
from schemas.templates import ReplyTemplate, RequestOptions, RequestTemplate, TensorForm, pack_timing
from schemas.tensors import DType
from schemas.wire import Route

X = TensorForm("x", DType.FP32, (1, 20), 80, inline=True)
Z = TensorForm("z", DType.UINT8, (3,), 3, inline=True)
IMAGE = TensorForm("image", DType.ENCODED, (1,), 90_000, content_type="image/png")
MASK = TensorForm("mask", DType.UINT8, (48, 64), 3_072)
TIMES = [(1, 2, 3), (4, 5, 6)]


def inline_of(header: bytes) -> list[bytes]:
    """Return the contents of the inline tensors of *header*."""
    tensors = [tensor for tensor in read_layout(header).tensors if tensor.place == Place.INLINE]
    return [header[tensor.inline_at : tensor.inline_at + tensor.nbytes] for tensor in tensors]


def test_a_request_has_the_route_it_was_given() -> None:
    """The rest of the Route is fixed by the template."""
    template = RequestTemplate("m", [X], RequestOptions(priority=2))
    header = template.header(1, 2, (bytes(80),), born_us=3, key=4, flags=Flag.STREAM)

    assert read_route(header, read_layout(header)) == Route(1, 2, 3, 4, 0, 0, Flag.STREAM, 0, 0, Kind.INFER_REQUEST, 2, 0)


def test_a_request_is_idempotent_unless_the_client_says_otherwise() -> None:
    """Inference may be run again."""
    header = RequestTemplate("m", []).header(1, 2)

    assert read_route(header, read_layout(header)).flags == Flag.IDEMPOTENT


def test_any_buffer_is_taken_inline() -> None:
    """What numpy offers, too, without a copy of its own."""
    numbers = array("f", range(20))
    template = RequestTemplate("m", [X])

    assert template.header(1, 2, (numbers,)) == template.header(1, 2, (memoryview(numbers),))
    assert inline_of(template.header(1, 2, (numbers,))) == [numbers.tobytes()]


def test_several_inline_tensors_keep_their_order() -> None:
    """Also with others in frames between them."""
    template = RequestTemplate("m", [X, IMAGE, Z, MASK])
    header = template.header(1, 2, (b"x" * 80, b"zzz"))

    assert inline_of(header) == [b"x" * 80, b"zzz"]
    assert [tensor.frame for tensor in read_layout(header).tensors] == [-1, 0, -1, 1]
    assert template.frames == read_route(header, read_layout(header)).payload_frames == 2


def test_an_empty_inline_tensor_has_its_place() -> None:
    """No bytes, but a buffer."""
    empty = TensorForm("e", DType.FP32, (0, 20), 0, inline=True)

    assert inline_of(RequestTemplate("m", [empty, Z]).header(1, 2, (b"", b"abc"))) == [b"", b"abc"]


def test_the_options_of_a_request_are_in_each_header() -> None:
    """All of them."""
    options = RequestOptions("3", ("a",), {"p": 1}, "id", KeyPolicy.LATEST_N, 5, finite=True)
    layout = read_layout(RequestTemplate("m", [MASK], options).header(1, 2))

    assert (layout.version, layout.outputs, layout.params) == ("3", ("a",), {"p": 1})
    assert (layout.key_policy, layout.latest_n, layout.finite) == (KeyPolicy.LATEST_N, 5, True)


@pytest.mark.parametrize(
    ("tensor", "code"),
    [
        (TensorForm("x", DType.FP32, (1, 20), 79, inline=True), Code.SIZE_MISMATCH),
        (TensorForm("x", DType.UINT8, (5_000,), 5_000, inline=True), Code.TOO_LARGE),
        (TensorForm("", DType.UINT8, (3,), 3), Code.BAD_NAME),
    ],
)
def test_a_template_that_every_server_would_refuse_is_not_made(tensor: TensorForm, code: Code) -> None:
    """The client learns it before it sends."""
    with pytest.raises(RequestError) as caught:
        RequestTemplate("m", [tensor])
    assert caught.value.code == code


@pytest.mark.parametrize("inline", [(), (bytes(80),), (bytes(79), bytes(4)), (bytes(80), bytes(3), b"")])
def test_inline_buffers_of_other_sizes_are_an_error(inline: tuple[bytes, ...]) -> None:
    """Even when their sum is right."""
    with pytest.raises(ValueError, match=r"size|expected"):
        RequestTemplate("m", [X, Z]).header(1, 2, inline)


def test_a_single_inline_buffer_of_another_size_is_an_error() -> None:
    """It names the tensor and the sizes."""
    with pytest.raises(ValueError, match="inline tensor 0: expected 80 bytes, got 81"):
        RequestTemplate("m", [X]).header(1, 2, (bytes(81),))


def test_a_reply_carries_times_retries_and_backlog() -> None:
    """And the ids of its request."""
    template = ReplyTemplate("m", "2", [Z, MASK], stages=2)
    header = template.header((1, 2, 3), pack_timing(TIMES), 4, 500, (b"abc",))
    layout = read_layout(header)

    assert read_route(header, layout) == Route(1, 0, 2, 3, 0, 0, Flag.FINAL, 1, 0, Kind.INFER_REPLY, 0, 0)
    assert (layout.model, layout.version, template.frames) == ("m", "2", 1)
    assert (read_timing(header, layout), read_retries(header, layout), read_backlog_us(header, layout)) == (TIMES, 4, 500)
    assert inline_of(header) == [b"abc"]


def test_a_reply_may_have_neither_stages_nor_outputs() -> None:
    """A lane without a model."""
    header = ReplyTemplate("echo", "", [], stages=0).header((1, 2, 3), b"", 0, 0)

    assert read_timing(header, read_layout(header)) == []
    assert read_layout(header).tensors == ()


def test_times_of_another_length_are_an_error() -> None:
    """Also when an inline buffer makes up for it."""
    template = ReplyTemplate("m", "1", [Z], stages=2)

    with pytest.raises(ValueError, match="timing: expected 24 bytes, got 23"):
        template.header((1, 2, 3), bytes(23), 0, 0, (bytes(4),))


def test_a_header_does_not_change_the_one_before() -> None:
    """Each is patched from the template, not from the last."""
    template = ReplyTemplate("m", "1", [Z], stages=1)
    first = template.header((1, 2, 3), bytes(12), 0, 0, (b"abc",))
    template.header((4, 5, 6), b"\1" * 12, 1, 1, (b"def",))

    assert template.header((1, 2, 3), bytes(12), 0, 0, (b"abc",)) == first
