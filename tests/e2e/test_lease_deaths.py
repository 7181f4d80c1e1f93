"""Leases whose clients, stages or broker die; and who gets none. Each test has a server of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lease_stages import FRAME_BYTES, lease_config, tile_sums
from places import StartServer
from server import ROOT, Server, place_environment, wait_until
from test_leases import check_all_free, fill, image, lease_stats

from clients import Client, ConnectionLost, Frame, RequestFailed, RequestRefused, Unauthorized
from clients.lease_socket import take_lease
from schemas.leases import Ask, LeaseOp
from schemas.status import Code


@pytest.fixture
def server(make_server: StartServer, place: Path) -> Server:
    """A server that lends two leases of three frames."""
    return make_server(lease_config(place)).start()


def test_a_stage_killed_in_mid_read_reads_the_same_frame_again(server: Server, place: Path) -> None:
    """The frame is busy all the while, so that the second run finds what the first had."""
    with Client(server.endpoint) as client, client.lease() as lease, lease.frame() as frame:
        values = fill(frame, image()).copy()
        call = client.submit("slow", {"image": frame})
        wait_until((place / "reading").exists, "the stage to read")
        (place / "reading").unlink()
        os.kill(server.child("slow.0"), signal.SIGKILL)
        wait_until((place / "reading").exists, "another to read")
        assert frame.is_busy
        (place / "go").touch()
        result = call.result()
        assert np.array_equal(result["before"], tile_sums(values))
        assert np.array_equal(result["after"], tile_sums(values))
        assert result.retries == 1
        assert not frame.is_busy
    assert server.deaths() == ["slow.0"]
    wait_until(lambda: lease_stats(server)["free"] == 2, "all leases to be free")


def test_a_request_that_kills_twice_lets_go_of_its_frame(server: Server, place: Path) -> None:
    """QUARANTINED with the digest of what lay in the frame; it is free when nobody can read it any more."""
    with Client(server.endpoint) as client, client.lease() as lease, lease.frame() as frame:
        fill(frame, image())
        call = client.submit("slow", {"image": frame})
        for _ in range(2):
            wait_until((place / "reading").exists, "a stage to read")
            (place / "reading").unlink()
            os.kill(server.child("slow.0"), signal.SIGKILL)
        with pytest.raises(RequestFailed, match=r"QUARANTINED.*input blake2b-64"):
            call.result()
        wait_until(lambda: client.health() and not frame.is_busy, "the frame")
    wait_until(lambda: lease_stats(server)["free"] == 2, "all leases to be free")


DIES = """
import os, signal, sys
import numpy as np
from clients import Client
client = Client(sys.argv[1])
frame = client.lease().frame()
frame.array(8000)[:] = 5
client.submit("slow", {"image": frame})
client.health()
print("sent", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_client_killed_in_mid_request_gives_its_lease_back(server: Server, place: Path) -> None:
    """After its request has ended: until then the stage reads what the client left."""
    environment = {**place_environment(place), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", DIES, server.endpoint], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.returncode) == ("sent\n", -signal.SIGKILL), done.stderr
    wait_until((place / "reading").exists, "the stage to read")
    wait_until(lambda: lease_stats(server)["ended"] == 1, "the server to see the death")
    assert (lease_stats(server)["free"], lease_stats(server)["frames_in_use"]) == (1, 1)
    (place / "go").touch()
    check_all_free(server)
    with Client(server.endpoint) as client, client.lease(), client.lease() as lease, lease.frame() as frame:
        assert not frame.array(FRAME_BYTES).any(), "what another client has written is seen"


def infer_for_ever(client: Client, frame: Frame) -> None:
    """Send a frame again and again."""
    while True:
        client.infer("tiles", {"image": frame})


def test_the_brokers_death_ends_its_leases(server: Server) -> None:
    """The client is told, writes on in memory that is nobody's, and asks the next broker."""
    with Client(server.endpoint, timeout_s=20.0) as client:
        with client.lease() as lease, lease.frame() as frame:
            array = fill(frame, image())
            assert client.infer("tiles", {"image": frame})["sums"].any()
            os.kill(server.child("broker"), signal.SIGKILL)
            with pytest.raises(ConnectionLost):
                infer_for_ever(client, frame)
            array[:] = 1
            wait_until(lambda: client.ready(), "the next epoch")
            with pytest.raises(ConnectionLost, match="the lease ended"):
                client.infer("tiles", {"image": frame})
            with pytest.raises(ConnectionLost, match="the lease ended"):
                lease.frame()
        with client.lease() as lease, lease.frame() as frame:
            values = fill(frame, image())
            assert np.array_equal(client.infer("tiles", {"image": frame})["sums"], tile_sums(values))
            del values, array
    wait_until(lambda: lease_stats(server)["free"] == 2, "all leases to be free")


def test_another_user_gets_no_lease(server: Server) -> None:
    """Whoever may open the socket file: the server looks at the user of the process that connects."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    with Client(server.endpoint) as client:
        path, token = client._session.lease_access
    os.chmod(server.place, 0o755)
    os.chmod(path, 0o777)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            take_lease(path, Ask(LeaseOp.LEASE, token), 10.0)
        except Unauthorized as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    said = os.read(reader, 1000).decode()
    os.close(reader)
    assert "leases are for the server's user, 0, not 65534" in said
    assert server.events("lease_refused")[0]["uid"] == 65534
    check_all_free(server)


def test_a_server_without_leases_says_so(make_server: StartServer) -> None:
    """By the config key."""
    server = make_server("[lane.echo]\n").start()
    with Client(server.endpoint) as client, pytest.raises(RequestRefused, match=r"leases\.count") as caught:
        client.lease()
    assert caught.value.code == Code.NOT_SUPPORTED
