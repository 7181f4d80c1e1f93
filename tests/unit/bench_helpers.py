"""What the tests of the benchmark share: a scripted server in Python, and whether the generator can be built here."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import flatbuffers
import pytest
import zmq

from bench.requests import Requests
from schemas.fb import Body, Failure, InferOut, Message, Route
from schemas.status import Code, Flag, Kind

Answer = Callable[[int, bytes], Sequence[bytes]]

# Not FlatBuffers: against an echo only the place of the id matters. 8 distinct headers of 64 bytes, id at byte 16.
PLAIN = Requests(tuple((bytes([index]) * 64,) for index in range(8)), headers=1, id_at=16)


def _lack() -> str:
    """Return what is missing for building the generator, "" when nothing is."""
    if shutil.which("cc") is None:
        return "no C compiler"
    probe = subprocess.run(["cc", "-E", "-"], input=b"#include <zmq.h>\n", capture_output=True, check=False)
    return "no libzmq headers" if probe.returncode else ""


LACK = _lack()
needs_generator = pytest.mark.skipif(bool(LACK), reason=f"the load generator cannot be built here: {LACK}")


def plain_id(frame: bytes) -> int:
    """Return the request id of a PLAIN header."""
    (request_id,) = struct.unpack_from("<Q", frame, PLAIN.id_at)
    return int(request_id)


@contextlib.contextmanager
def scripted_router(directory: Path, answer: Answer) -> Iterator[str]:
    """Run a ROUTER that sends ``answer(n, frame)``, any number of replies, for its n-th request (from 0); yield its endpoint.

    Requests that came in one message are answered in one.
    """
    endpoint = f"ipc://{directory}/router.ipc"
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.set_hwm(0)
    router.bind(endpoint)
    thread = threading.Thread(target=_serve, args=(router, answer))
    thread.start()
    try:
        yield endpoint
    finally:
        # Ends the thread's receive with ContextTerminated; it closes its socket.
        context.term()
        thread.join()


def _serve(router: zmq.Socket[bytes], answer: Answer) -> None:
    """Answer until the context ends."""
    count = 0
    with contextlib.suppress(zmq.ContextTerminated):
        while True:
            peer, *frames = router.recv_multipart()
            replies = [answer(count + index, frame) for index, frame in enumerate(frames)]
            count += len(frames)
            if len(frames) > 1:
                router.send_multipart([peer, *(reply for of_frame in replies for reply in of_frame)])
                continue
            for reply in replies[0]:
                router.send_multipart([peer, reply])
    router.close(linger=0)


def message(request_id: int, *, code: Code = Code.NONE, flags: Flag = Flag.FINAL) -> bytes:
    """Return a finished reply: an empty result, or an error when *code* is given."""
    builder = flatbuffers.Builder(256)
    if code is Code.NONE:
        InferOut.Start(builder)
        body, body_type, kind = InferOut.End(builder), Body.Body.InferOut, Kind.INFER_REPLY
    else:
        text = builder.CreateString("as the test wants it")
        Failure.Start(builder)
        Failure.AddMessage(builder, text)
        Failure.AddCode(builder, code)
        body, body_type, kind = Failure.End(builder), Body.Body.Failure, Kind.ERROR
    Message.Start(builder)
    Message.AddBodyType(builder, body_type)
    Message.AddRoute(builder, Route.CreateRoute(builder, request_id, 0, 0, 0, 0, 0, flags, 0, 0, kind, 0, 0))
    Message.AddBody(builder, body)
    builder.Finish(Message.End(builder), b"SLT1")
    return bytes(builder.Output())
