"""Every public argument given wrongly: a TypeError, ValueError or refusal that names it, what it takes and what came."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from server import Server
from shared_server import shared_server

from clients import AsyncClient, BadKeys, Bfloat16, Client, Encoded, RequestRefused, ServerUnreachable
from schemas.status import RequestError
from stages.pipeline import Pipeline

CONFIG = "[lane.echo]\nslots = 4\nmax_encoded_bytes = 65_536\n"
HALF = "\ud800"  # half a character: no UTF-8 has it
X = np.ones(3, np.float32)
GOOD = {"x": X}
MASKED = np.ma.masked_array(X, [False, True, False])


class Opaque:
    """What numpy cannot make an array of."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Fail as a tensor on a GPU does."""
        raise TypeError("can't convert it to numpy")


# Options of a call: what is given, what is raised, and what its text begins with. The last word of each is what came.
OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"budget_us": 1.5}, TypeError, r"budget_us: expected a whole number, got float 1\.5"),
    ({"budget_us": "5"}, TypeError, "budget_us: expected a whole number, got str '5'"),
    ({"budget_us": None}, TypeError, "budget_us: expected a whole number, got NoneType"),
    ({"budget_us": True}, TypeError, "budget_us: expected a whole number, got bool True"),
    ({"budget_us": -1}, RequestRefused, "budget_us: expected 0 to .* got -1"),
    ({"key": 1.0}, TypeError, r"key: expected a whole number, got float 1\.0"),
    ({"key": "camera"}, TypeError, "key: expected a whole number, got str 'camera'"),
    ({"born_us": Decimal(5)}, TypeError, "born_us: expected a whole number, got Decimal"),
    ({"born_us": 1 << 64}, RequestRefused, "born_us: expected 0 to"),
    ({"priority": 0.5}, TypeError, r"priority: expected a whole number, got float 0\.5"),
    ({"priority": {}}, TypeError, "priority: expected a whole number, got dict"),
    ({"priority": set()}, TypeError, r"priority: expected a whole number, got set set\(\)"),
    ({"priority": 256}, RequestRefused, "priority: expected 0 to 255, got 256"),
    ({"idempotent": "no"}, TypeError, "idempotent: expected True or False, got str 'no'"),
    ({"copy": 0}, TypeError, "copy: expected True or False, got int 0"),
    ({"finite": "yes"}, TypeError, "finite: expected True or False, got str 'yes'"),
    ({"checksum": 7}, TypeError, "checksum: expected True or False, got int 7"),
    ({"version": 2}, TypeError, "version: expected a text, got int 2"),
    ({"version": HALF}, RequestRefused, "version: expected Unicode"),
    ({"outputs": 5}, TypeError, "outputs: expected a sequence of names, or a mapping from name to frame, got int 5"),
    ({"outputs": [5]}, RequestRefused, "outputs: expected a name, got 5"),
    ({"outputs": [HALF]}, RequestRefused, "outputs: expected Unicode"),
    ({"params": [1]}, TypeError, r"params: expected a mapping from name to value, got list \[1\]"),
    ({"params": {1: 2}}, TypeError, "params: expected a text, got int 1"),
    ({"params": {HALF: 2}}, RequestRefused, "params: expected Unicode"),
    ({"params": {"a": HALF}}, RequestRefused, "a: expected Unicode"),
    ({"params": {"a": [1]}}, RequestRefused, "a: expected a bool, i64, finite double or text, got list"),
    ({"params": {"a": None}}, RequestRefused, "a: expected a bool, i64, finite double or text, got NoneType"),
    ({"client_request_id": 12}, TypeError, "client_request_id: expected a text, got int 12"),
    ({"client_request_id": HALF}, RequestRefused, "client_request_id: expected Unicode"),
    ({"budget_ms": 5}, TypeError, "unknown option budget_ms"),
]
# What is asked for, and with which inputs.
REQUESTS: list[tuple[Any, Any, type[Exception], str]] = [
    (None, GOOD, RequestRefused, "model: expected a name, got None"),
    (["echo"], GOOD, RequestRefused, r"model: expected a name, got \['echo'\]"),
    (b"echo", GOOD, RequestRefused, "model: expected a name, got b'echo'"),
    (HALF, GOOD, RequestRefused, "model: expected Unicode"),
    ("echo", None, TypeError, "inputs: expected a mapping from name to value, .* got NoneType"),
    ("echo", [X], TypeError, "inputs: expected a mapping from name to value, .* got list"),
    ("echo", X, TypeError, "inputs: expected a mapping from name to value, .* got ndarray"),
    ("echo", {5: X}, RequestRefused, "inputs: expected a name, got 5"),
    ("echo", {"": X}, RequestRefused, "inputs: expected a name"),
    ("echo", {HALF: X}, RequestRefused, "inputs: expected Unicode"),
    ("echo", {"x": None}, RequestRefused, r"x\[0\]: expected bytes in an array of objects, got NoneType"),
    ("echo", {"x": "text"}, RequestRefused, "x: expected an array, bytes or Encoded, got str"),
    ("echo", {"x": object()}, RequestRefused, "x.*: expected bytes in an array of objects, got object"),
    ("echo", {"x": Opaque()}, RequestRefused, "x: expected an array, got Opaque: can't convert it to numpy"),
    ("echo", {5: Opaque()}, RequestRefused, "5: expected an array, got Opaque"),
    ("echo", {"x": [[1], [1, 2]]}, RequestRefused, "x: expected an array"),
    ("echo", {"x": MASKED}, RequestRefused, r"x: expected an array, got a masked one; .* array\.filled\(value\)"),
    ("echo", {"x": [MASKED, MASKED]}, RequestRefused, "x: expected an array, got a masked one"),
    ("echo", {"x": Bfloat16(MASKED)}, RequestRefused, "x: expected an array, got a masked one"),
    ("echo", {"x": Bfloat16(X)}, RequestRefused, "x: expected uint16 bits of BF16, got FP32"),
    ("echo", {"x": np.array(["a"])}, RequestRefused, "x: expected bool, numbers, bytes or Encoded, got <U1"),
    ("echo", {"x": np.array(["2026-01-01"], "M8[D]")}, RequestRefused, "x: expected bool, numbers, bytes or Encoded, got"),
    ("echo", {"x": Encoded(b"", HALF)}, RequestRefused, "x: expected Unicode"),
    ("echo", {"x": np.zeros((1,) * 9)}, RequestRefused, "x"),
    ("echo", {"n" * 33: X}, RequestRefused, "n+: expected at most 32 bytes"),
    ("echo", {}, RequestRefused, "inputs: expected 1 to 8 tensors, got 0"),
    ("echo", {str(at): X for at in range(9)}, RequestRefused, "inputs: expected 1 to 8 tensors, got 9"),
]
MANY: list[tuple[Any, str]] = [
    (GOOD, "inputs: expected a sequence of mappings, one for each request, got dict"),
    (None, "inputs: expected a sequence of mappings, one for each request, got NoneType"),
    (["x"], "inputs: expected a mapping from name to value"),
]
ANY_KIND = (TypeError, ValueError, RequestRefused, RequestError)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One server with an echo lane."""
    with shared_server(lambda _: CONFIG) as shared:
        yield shared


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    """A client that has been served, and is served again after all that it was given."""
    with Client(server.endpoint) as made:
        made.infer("echo", GOOD)
        yield made
        assert made._session.in_flight == 0
        assert made.infer("echo", GOOD)["x"].tolist() == X.tolist()


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """The same lane embedded."""
    path = tmp_path_factory.mktemp("embedded") / "config.toml"
    path.write_text(CONFIG)
    with Pipeline(path) as embedded:
        yield embedded
        assert embedded.infer("echo", GOOD)["x"].tolist() == X.tolist()


def raised(call: Callable[[], Any]) -> Exception:
    """Return what *call* raises: one of those that a caller is promised, with a text for people."""
    with pytest.raises(ANY_KIND) as caught:
        call()
    assert type(caught.value) in (*ANY_KIND, BadKeys), repr(caught.value)
    str(caught.value).encode("ascii")
    return caught.value


def raised_by_asyncio(endpoint: str, call: Callable[[AsyncClient], Any]) -> Exception:
    """Return what the asyncio client raises, before or while it is awaited."""

    async def main() -> None:
        async with AsyncClient(endpoint) as client:
            try:
                await call(client)
            finally:
                assert client._session.in_flight == 0

    return raised(lambda: asyncio.run(main()))


def check(error: Exception, kind: type[Exception], said: str) -> None:
    """Fail unless *error* is of that kind and begins with that, after the code of a refusal."""
    assert type(error) is kind
    text = str(error).partition("): ")[2] if isinstance(error, RequestRefused) else str(error)
    assert re.match(said, text), text


@pytest.mark.parametrize(("options", "kind", "said"), OPTIONS, ids=range(len(OPTIONS)))
def test_a_wrong_option_is_named(server: Server, client: Client, options: Any, kind: type[Exception], said: str) -> None:
    """By both clients, one by one and many; with ``on_failure`` too when it is the program that is wrong."""
    check(raised(lambda: client.infer("echo", GOOD, **options)), kind, said)
    check(raised(lambda: client.submit("echo", GOOD, **options)), kind, said)
    check(raised(lambda: client.infer_many("echo", [GOOD], **options)), kind, said)
    check(raised_by_asyncio(server.endpoint, lambda c: c.infer("echo", GOOD, **options)), kind, said)
    check(raised_by_asyncio(server.endpoint, lambda c: c.infer_many("echo", [GOOD], **options)), kind, said)
    if kind is RequestRefused:
        assert client.infer("echo", GOOD, **options, on_failure="NG") == "NG"
    else:
        check(raised(lambda: client.infer("echo", GOOD, **options, on_failure="NG")), kind, said)


@pytest.mark.parametrize(("model", "inputs", "kind", "said"), REQUESTS, ids=range(len(REQUESTS)))
def test_a_wrong_request_is_named(
    server: Server, client: Client, pipeline: Pipeline, model: Any, inputs: Any, kind: type[Exception], said: str
) -> None:
    """By both clients; embedded it is the same text. What is wrong with a part is that part's failure, not the program's end."""
    check(raised(lambda: client.infer(model, inputs)), kind, said)
    check(raised_by_asyncio(server.endpoint, lambda c: c.infer(model, inputs)), kind, said)
    embedded = raised(lambda: pipeline.infer(model, inputs))
    if kind is TypeError:
        check(embedded, kind, said)
    else:
        assert isinstance(embedded, RequestError)
        assert embedded.code == raised(lambda: client.infer(model, inputs)).code  # type: ignore[attr-defined]
        assert re.match(said, str(embedded)), str(embedded)
        assert client.infer(model, inputs, on_failure="NG") == "NG"


@pytest.mark.parametrize(("inputs", "said"), MANY, ids=range(len(MANY)))
def test_many_inputs_are_many(server: Server, client: Client, pipeline: Pipeline, inputs: Any, said: str) -> None:
    """Those of one request are no sequence of them."""
    check(raised(lambda: client.infer_many("echo", inputs)), TypeError, said)
    check(raised_by_asyncio(server.endpoint, lambda c: c.infer_many("echo", inputs)), TypeError, said)
    check(raised(lambda: pipeline.infer_many("echo", inputs)), TypeError, said)


def test_numbers_and_truths_of_numpy_are_numbers_and_truths(client: Client, pipeline: Pipeline) -> None:
    """They come out of computations."""
    options = {"budget_us": np.int64(5_000_000), "key": np.uint64(2**64 - 1), "idempotent": np.bool_(True)}

    assert client.infer("echo", GOOD, **options)["x"].tolist() == X.tolist()
    assert pipeline.infer("echo", GOOD, budget_us=np.int32(10**6))["x"].tolist() == X.tolist()
    assert client.infer("echo", {"x": X.view(np.recarray)})["x"].tolist() == X.tolist()


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"budget_us": 0.5}, TypeError, r"budget_us: expected a whole number, got float 0\.5"),
        ({"budget_us": -1}, RequestError, "budget_us: expected 0 or more, got -1"),
        ({"finite": 1}, TypeError, "finite: expected True or False, got int 1"),
    ],
)
def test_a_wrong_option_is_named_embedded(pipeline: Pipeline, options: Any, kind: type[Exception], said: str) -> None:
    """There are only two."""
    check(raised(lambda: pipeline.infer("echo", GOOD, **options)), kind, said)


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ({"endpoint": None}, TypeError, 'endpoint: expected a text such as "ipc://run/slotline.ipc", got NoneType'),
        ({"endpoint": Path("s")}, TypeError, "endpoint: expected a text .* got PosixPath"),
        ({"endpoint": "ipc://a\0b"}, ValueError, "endpoint: expected Unicode without zeros"),
        ({"endpoint": HALF}, ValueError, "endpoint: expected Unicode without zeros"),
        ({"timeout_s": "5"}, TypeError, "timeout_s: expected a number of seconds, got str '5'"),
        ({"timeout_s": None}, TypeError, "timeout_s: expected a number of seconds, got NoneType"),
        ({"timeout_s": 0}, ValueError, "timeout_s: expected more than 0"),
        ({"timeout_s": float("nan")}, ValueError, "timeout_s: expected a number of seconds, got nan"),
        ({"connect": "no"}, TypeError, "connect: expected True or False, got str 'no'"),
        ({"server_key": b"x"}, TypeError, "server_key: expected a text or a Path, got bytes"),
        ({"server_key": "x" * 40, "key_file": 5}, TypeError, "key_file: expected a text or a Path, got int"),
        ({"server_key": "x" * 40, "key": "secret"}, TypeError, r"key: expected \(public, secret\), two texts, got str"),
        ({"server_key": "x" * 40, "key": ("a", b"b")}, TypeError, r"key: expected \(public, secret\), two texts, got tuple"),
        ({"server_key": "x" * 40, "key": ("a", "b")}, BadKeys, "key: expected"),
    ],
)
def test_a_wrong_argument_of_a_client_is_named(server: Server, arguments: Any, kind: type[Exception], said: str) -> None:
    """Before anything is opened."""
    given = {"endpoint": server.endpoint, **arguments}

    check(raised(lambda: Client(**given)), kind, said)
    check(raised(lambda: AsyncClient(**given)), kind, said)


def test_a_wrong_call_is_named(server: Server, client: Client) -> None:
    """In wait, as_completed, cancel and result; one of another client would be waited for in vain."""
    call = client.submit("echo", GOOD)
    with Client(server.endpoint) as other:
        theirs = other.submit("echo", GOOD)
        wrongs: list[tuple[Any, type[Exception], str]] = [(5, TypeError, "call: expected what submit returned, got int 5")]
        wrongs += [(theirs, ValueError, "call: expected one of this client")]
        for wrong, kind, said in wrongs:
            check(raised(lambda wrong=wrong: client.wait([wrong])), kind, said)
            check(raised(lambda wrong=wrong: list(client.as_completed([wrong]))), kind, said)
            check(raised(lambda wrong=wrong: client.cancel(wrong)), kind, said)
        theirs.result()
    check(raised(lambda: client.wait([call], "1")), TypeError, "timeout_s: expected a number of seconds, got str '1'")
    check(raised(lambda: call.result("1")), TypeError, "timeout_s: expected a number of seconds, got str '1'")
    client.wait([call], -1.0)
    assert call.result(float("inf"))["x"].tolist() == X.tolist()


def test_a_wrong_question_is_named(server: Server, client: Client) -> None:
    """By its model."""
    for ask in (client.ready, client.metadata):
        check(raised(lambda ask=ask: ask(5)), TypeError, "model: expected a text, got int 5")
        check(raised(lambda ask=ask: ask(HALF)), RequestRefused, "model: expected Unicode")
        check(raised(lambda ask=ask: ask("x" * 70_000)), RequestRefused, "header: expected at most 65536 bytes")
    for wrong in (5, HALF):
        raised_by_asyncio(server.endpoint, lambda c, wrong=wrong: c.ready(wrong))
        raised_by_asyncio(server.endpoint, lambda c, wrong=wrong: c.metadata(wrong))


@pytest.mark.parametrize("config", [None, 5, b"config.toml"])
def test_a_wrong_config_is_named(config: Any) -> None:
    """Of a pipeline."""
    check(raised(lambda: Pipeline(config)), TypeError, "config: expected a Config, or the path of a config file, got")


def test_an_endpoint_that_is_none_says_what_one_looks_like(server: Server) -> None:
    """It is a text, so it is the connection that fails."""
    with pytest.raises(ServerUnreachable, match=r"did you mean tcp://localhost:7000\?"):
        Client("localhost:7000", timeout_s=0.2)
