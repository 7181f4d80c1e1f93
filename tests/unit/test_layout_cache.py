"""The cache finds a layout again by the bytes that decide it, and by nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from headers import make_request, make_route, make_tensor

from schemas.layout import read_client_request_id, read_route
from schemas.layout_cache import MAX_BYTES, MAX_DECIDING_BYTES, LayoutCache
from schemas.status import Code, RequestError
from schemas.templates import ReplyTemplate, TensorForm, pack_timing
from schemas.tensors import DType


def test_a_tick_hits_what_the_tick_before_it_left() -> None:
    """Another id, budget and content; the same layout."""
    cache = LayoutCache()
    first = cache.read(make_request())
    second = make_request(make_route(request_id=8, budget_us=1), inputs=[make_tensor(inline_data=bytes(80))])

    assert cache.read(second) is first
    assert read_route(second, first).request_id == 8


def test_client_request_ids_of_one_length_share_a_layout() -> None:
    """Each is still read from its own header."""
    cache = LayoutCache()
    one, two = make_request(client_request_id="a-1"), make_request(client_request_id="b-2")

    assert cache.read(one) is cache.read(two)
    assert read_client_request_id(two, cache.read(one)) == "b-2"


def test_checksums_share_a_layout() -> None:
    """They differ with every payload."""
    cache = LayoutCache()

    assert cache.read(make_request(checksum=1)) is cache.read(make_request(checksum=2))


def test_replies_with_other_times_share_a_layout() -> None:
    """Times, retries and backlog are read by position."""
    cache = LayoutCache()
    template = ReplyTemplate("m", "1", [TensorForm("y", DType.FP32, (1, 3), 12, inline=True)], stages=2)
    one = template.header((1, 2, 3), pack_timing([(1, 2, 3)] * 2), 0, 5, (bytes(12),))
    two = template.header((4, 5, 6), pack_timing([(7, 8, 9)] * 2), 1, 6, (b"\1" * 12,))

    assert cache.read(one) is cache.read(two)


@pytest.mark.parametrize(
    "other",
    [
        make_request(model="tacks"),
        make_request(inputs=[make_tensor(shape=[20, 1])]),
        make_request(inputs=[make_tensor(name="y")]),
    ],
)
def test_what_decides_the_layout_makes_another_one(other: bytes) -> None:
    """Although the headers are equally long."""
    cache = LayoutCache()
    first = cache.read(make_request())

    assert len(other) == len(make_request())
    assert cache.read(other) != first
    assert cache.read(make_request()) is first


def test_each_layout_has_a_key_of_its_own() -> None:
    """Also after the cache was cleared."""
    cache = LayoutCache(limit=2)
    keys = [cache.read(make_request(model=f"model {index}")).key for index in range(8)]

    assert len(set(keys)) == 8


def test_the_cache_is_bounded() -> None:
    """When it is full it starts over."""
    cache = LayoutCache(limit=2)
    first = cache.read(make_request())
    for model in ("one", "two"):
        cache.read(make_request(model=model))
    again = cache.read(make_request())

    assert again is not first
    assert again == replace(first, key=again.key)


def test_a_refused_header_is_refused_again() -> None:
    """It leaves nothing in the cache."""
    cache = LayoutCache()
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            cache.read(make_request(inputs=[make_tensor(nbytes=79)]))
        assert caught.value.code == Code.SIZE_MISMATCH


def test_a_header_that_is_decided_by_too_many_bytes_is_not_kept() -> None:
    """Its key says so, and is its own all the same; free bytes do not count."""
    cache = LayoutCache()
    long = make_request(params=[{"name": "p", "ptype": 4, "text": "x" * MAX_DECIDING_BYTES}])
    inline = make_request(inputs=[make_tensor(dtype=2, shape=[4096], nbytes=4096, inline_data=bytes(4096))])
    first, again = cache.read(long), cache.read(long)

    assert first.key < -1
    assert again.key < -1
    assert first.key != again.key
    assert replace(first, key=0) == replace(again, key=0)
    assert cache.read(inline) is cache.read(inline)


def test_the_cache_is_bounded_in_bytes() -> None:
    """Long layouts start it over before there are as many as short ones may be."""
    cache = LayoutCache(limit=10_000)
    text = "x" * (MAX_DECIDING_BYTES - 500)
    first = cache.read(make_request(model="first", version=text))
    for index in range(MAX_BYTES // len(text)):
        cache.read(make_request(model=f"{index:05}", version=text))

    assert cache.read(make_request(model="first", version=text)) is not first
