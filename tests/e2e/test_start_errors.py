"""Mistakes met at the start: one line on stderr with the cure, exit code 2, no traceback, nothing left."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
from pathlib import Path

import configs
import pytest
from places import StartServer
from raw_client import statistics
from server import DEMO, PATIENCE_S, ROOT, RUN, place_environment, run_once, wait_until

MODEL = ROOT / "stages" / "demo" / "trading_mlp.onnx"
LANE = f'[lane.ticks]\nmodel = "{MODEL}"\nmax_encoded_bytes = 4096\n'


def refusal(place: Path, config: str, *, endpoint: str = "", environment: dict[str, str] | None = None) -> str:
    """Try to serve *config* and return the one line that says why not."""
    path = place / "config.toml"
    path.write_text(config)
    # An empty endpoint is the config's own.
    options = ["--endpoint", endpoint] if endpoint else []
    run = run_once(place, "serve", str(path), *options, environment=environment)
    assert run.returncode == 2, run.stderr
    assert run.stdout == ""
    assert "Traceback" not in run.stderr
    line = [text for text in run.stderr.splitlines() if not text.startswith("{")]
    assert len(line) == 1, run.stderr
    assert line[0].startswith("slotline: ")
    return line[0]


def test_a_second_server_on_the_same_endpoint_is_refused(make_server: StartServer, place: Path) -> None:
    """It names the one that is there, which serves on undisturbed."""
    server = make_server(configs.digests()).start()

    line = refusal(place, configs.digests(), endpoint=server.endpoint)

    assert f"in use by the server with pid {server.pid}: stop it or choose another endpoint" in line
    assert statistics(server.control)["state"] == "serving"
    assert server.stop() == 0


def test_a_killed_servers_endpoint_is_free(make_server: StartServer, place: Path) -> None:
    """The lock goes with its process, the file alone locks nobody out."""
    server = make_server(configs.digests()).start()
    os.kill(server.pid, signal.SIGKILL)
    server.wait()

    again = make_server(configs.digests()).start()
    assert again.stop() == 0


def test_a_path_that_no_socket_can_have_is_refused(place: Path) -> None:
    """ipc paths end at 107 bytes; the control socket's name is 8 longer."""
    line = refusal(place, LANE, endpoint=f"ipc://{place}/{'x' * 100}")

    assert "107 bytes" in line
    assert "write a shorter one" in line


def test_a_port_in_use_is_refused(place: Path) -> None:
    """Found out by the broker, told by the supervisor."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal(place, LANE, endpoint=f"tcp://127.0.0.1:{port}")

    assert f"tcp://127.0.0.1:{port}: is in use: stop the other server or choose another endpoint" in line


def test_an_unknown_field_is_refused(place: Path) -> None:
    """With the nearest name that there is."""
    line = refusal(place, LANE + "max_batch_sise = 8\n")

    assert 'lane.ticks.max_batch_sise: unknown; did you mean "max_batch_size"?' in line


def test_a_missing_config_is_refused(place: Path) -> None:
    """With what to do instead."""
    run = run_once(place, "serve", str(place / "none.toml"))

    assert run.returncode == 2
    assert run.stderr.splitlines() == [run.stderr.strip()]
    assert "name a readable config file" in run.stderr


def test_a_missing_model_is_refused(place: Path) -> None:
    """It says where it looked."""
    line = refusal(place, '[lane.ticks]\nmodel = "no.onnx"\n')

    assert f"there is none at {place / 'no.onnx'}: correct the path" in line


@pytest.mark.parametrize("size", [0, 100, 3000])
def test_a_truncated_model_is_refused(place: Path, size: int) -> None:
    """Wherever it ends."""
    (place / "half.onnx").write_bytes(MODEL.read_bytes()[:size])

    line = refusal(place, '[lane.ticks]\nmodel = "half.onnx"\n')

    assert "half.onnx: onnxruntime cannot load it as an ONNX model" in line
    assert "export or copy it again" in line


@pytest.mark.parametrize(("module", "lane"), [("onnxruntime", LANE), ("PIL", ""), ("simplejpeg", "")])
def test_a_missing_library_is_named_with_its_extra(place: Path, module: str, lane: str) -> None:
    """As in an installation without the extra: the import fails."""
    stubs = place / "stubs"
    stubs.mkdir()
    (stubs / f"{module}.py").write_text(f"raise ModuleNotFoundError('no {module}', name='{module}')\n")
    picture = "[lane.pictures]\n[lane.pictures.decode]\nuse = 'image'\n"

    line = refusal(place, lane or picture, environment={"PYTHONPATH": str(stubs)})

    assert module in line
    assert "pip install 'slotline[cpu]'" in line


def test_a_directory_that_cannot_be_made_is_refused(place: Path) -> None:
    """A path below a file."""
    (place / "file").touch()

    line = refusal(place, LANE, endpoint=f"ipc://{place}/file/s")

    assert f"directory {place}/file: " in line
    assert "choose a directory of yours" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root has rights everywhere")
def test_a_directory_without_rights_is_refused(place: Path) -> None:
    """Somebody else's."""
    closed = place / "closed"
    closed.mkdir(mode=0o500)

    line = refusal(place, LANE, endpoint=f"ipc://{closed}/s")

    assert "no rights to write there: choose a directory of yours" in line


def test_memory_that_is_not_there_is_refused(place: Path) -> None:
    """The arena is taken in full at the start, so that nothing runs out of it later."""
    line = refusal(
        place, "[lane.echo]\nslots = 65536\nmax_encoded_bytes = 1_000_000_000\n[server]\nmax_message_bytes = 1073741824\n"
    )

    assert "lane.echo.slots = 65536" in line
    assert "lower slots" in line


def test_a_user_function_that_is_not_there_is_refused(place: Path) -> None:
    """Module and function."""
    config = configs.digests()

    assert "there is no module nowhere" in refusal(place, config.replace("stages_for_tests:decode", "nowhere:decode"))
    assert "has no function nothing" in refusal(place, config.replace("stages_for_tests:decode", "stages_for_tests:nothing"))


def test_a_server_whose_ready_line_nobody_reads_says_so(place: Path) -> None:
    """Whoever started it waits for the line, or is gone; a server that nobody knows of must not end without a word."""
    (place / "c.toml").write_text("[lane.echo]")
    command = [*RUN, "serve", "c.toml", "--endpoint", f"ipc://{place}/s"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, env=place_environment(place), cwd=place, timeout=PATIENCE_S, check=False
    )
    os.close(writer)

    assert done.returncode == 2
    lines = [line for line in done.stderr.decode().splitlines() if not line.startswith("{")]
    assert lines == ["slotline: stdout: nobody reads the ready line: keep its reader, or send it elsewhere (> ready.txt)"]


def test_a_ready_line_can_be_split_whatever_the_path(place: Path, make_server: StartServer) -> None:
    """A path with a space and a quote stands in quotes; with --json there is nothing to split."""
    server = make_server("[lane.echo]")
    server.endpoint = f"ipc://{place}/it's here/s"
    server.launch()
    wait_until(lambda: server.ready_line() or server.poll() is not None, "a ready line")

    assert shlex.split(server.ready_line()) == ["ready", server.endpoint, f"control={server.endpoint}.control"]
    assert server.stop() == 0


def test_the_demo_serves_on_a_port(place: Path, make_server: StartServer) -> None:
    """TCP on this machine alone needs no key; its control socket is chosen at the start and told by the ready line."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = make_server(DEMO)
    server.endpoint = f"tcp://127.0.0.1:{port}"
    server.control = "ipc://"
    server.start()

    control = server.ready_line().partition("control=")[2]
    assert statistics(control)["state"] == "serving"
    assert server.stop() == 0
