"""The config file: what is read, what is filled in, and that each mistake is one line with its cure."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.config import Config, LaneConfig, field_table, load_config, parse_config
from schemas.status import ConfigError
from schemas.tensors import DType

ROOT = Path(__file__).parents[2]
SAMPLE = (ROOT / "examples" / "sample.toml").read_text(encoding="utf-8")
OUTPUTS = '[lane.a.preprocess]\nuse = "mine:stage"\noutputs = [{ %s }]'


def parse(text: str, base: Path = Path("/srv/line")) -> Config:
    """Return the config of *text* as if it came from a file in *base*."""
    return parse_config(text, base=base, source="line.toml")


def parse_lane(text: str, base: Path = Path("/srv/line")) -> LaneConfig:
    """Return the lane `a` that has the lines *text*."""
    return parse(f"[lane.a]\n{text}", base).lanes[0]


def message(text: str, base: Path = Path("/srv/line")) -> str:
    """Return the error that *text* leads to; it is one line and names the file."""
    with pytest.raises(ConfigError) as caught:
        parse(text, base)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("line.toml: ")
    return line.removeprefix("line.toml: ")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a directory that has the sample's model file; its content is not read here."""
    (tmp_path / "surface_qc.onnx").touch()
    return tmp_path


def test_the_complete_sample_loads(model: Path) -> None:
    """The sample of the docs is read as it stands there, each value where it belongs."""
    config = parse(SAMPLE, model)
    (lane,) = config.lanes

    assert config.server.drain_s == 10.0
    assert (lane.name, lane.model, lane.slots) == ("qc", model / "surface_qc.onnx", 32)
    assert lane.processes == (("decode", "preprocess"), ("infer",), ("postprocess",))
    assert lane.process_replicas == (1, 1, 1)
    assert (lane.decode.use, lane.decode.params["color"], lane.decode.params["orientation"]) == ("image", "grey", "stored")
    assert lane.postprocess.use == "surface_qc.rules:verdict"


@pytest.mark.parametrize("name", ["low_latency.toml", "throughput.toml", "echo.toml"])
def test_an_example_loads(name: str) -> None:
    """Each example beside the sample can be served as it is."""
    assert load_config(ROOT / "examples" / name).lanes


def test_an_empty_lane_is_an_echo_in_one_process() -> None:
    """Without a model there is no infer stage, and all stages share a process."""
    lane = parse_lane("")

    assert lane.stages == ("decode", "preprocess", "postprocess")
    assert lane.processes == (lane.stages,)
    assert (lane.decode.use, lane.preprocess.use, lane.postprocess.use) == ("tensor", "none", "none")


def test_a_lane_with_a_model_is_fused_by_default(model: Path) -> None:
    """All four stages share a process when the file names no cut."""
    lane = parse_lane('model = "surface_qc.onnx"', model)

    assert lane.processes == (("decode", "preprocess", "infer", "postprocess"),)


def test_paths_start_at_the_config_files_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the model nor the socket depends on the directory in which the server is started."""
    (tmp_path / "line.toml").write_text('[lane.a]\nmodel = "m.onnx"', encoding="utf-8")
    (tmp_path / "m.onnx").touch()
    monkeypatch.chdir(tmp_path)
    config = load_config(Path("line.toml"))
    monkeypatch.chdir("/")

    assert config.lanes[0].model == tmp_path / "m.onnx"
    assert config.server.endpoint == f"ipc://{tmp_path}/run/slotline.ipc"
    assert config.server.control == f"ipc://{tmp_path}/run/slotline.ipc.control"
    assert config.base == tmp_path


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """~ is expanded in model paths and ipc endpoints."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m.onnx").touch()
    config = parse('[server]\nendpoint = "ipc://~/s.ipc"\n[lane.a]\nmodel = "~/m.onnx"')

    assert config.lanes[0].model == tmp_path / "m.onnx"
    assert config.server.endpoint == f"ipc://{tmp_path}/s.ipc"


def test_the_control_endpoint_of_tcp_is_left_to_the_server() -> None:
    """A TCP port for control cannot be guessed here."""
    assert parse('[server]\nendpoint = "tcp://127.0.0.1:0"\n[lane.a]').server.control is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server]\nendpont = 1", 'server.endpont: unknown; did you mean "endpoint"?'),
        ("[servr]", 'servr: unknown; did you mean "server"?'),
        ("[lanes.qc]", 'lanes: unknown; did you mean "lane"?'),
        ("[lane.qc]\nslot = 3", 'lane.qc.slot: unknown; did you mean "slots"?'),
        ("[lane.qc.decode]\ncolour = 'grey'", 'lane.qc.decode.colour: unknown; did you mean "color"?'),
        ("[lane.qc.preprocess]\nzzz = 1", "lane.qc.preprocess.zzz: unknown; known here: use"),
        ("[lane.qc]\nslots = 0", "lane.qc.slots = 0: expected a whole number from 1 to 65536"),
        ("[lane.qc]\nslots = true", "lane.qc.slots = true: expected a whole number from 1 to 65536"),
        ("[lane.qc]\nslots = 8.0", "lane.qc.slots = 8.0: expected a whole number from 1 to 65536"),
        ("[server]\ndrain_s = nan", "server.drain_s = nan: expected a number from 0 to 3600"),
        ("[server]\nlog_level = 'loud'", 'server.log_level = "loud": expected "debug" or "info" or "warning" or "error"'),
        ("[lane.qc]\nspin = 'no'", 'lane.qc.spin = "no": expected true, false or "auto"'),
        ("[lane.qc]\ndevice = 'tpu'", 'lane.qc.device = "tpu": expected "cpu"'),
        ("[lane.'a b']", 'lane.a b = "a b": expected 1 to 64 letters, digits or _ . -'),
        ("lane = 3", "lane = 3: expected a table, written [lane]"),
        ("", "has 0 lanes; expected 1 to 256, each a table such as [lane.qc]"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_allowed(text: str, said: str) -> None:
    """The dotted field, the value and the range or the nearest known name are in the line."""
    assert message(text) == said


def test_broken_toml_is_one_line() -> None:
    """The parser's own words are kept, with the place."""
    assert message("[server\n").startswith("not TOML: ")
    assert "line 1" in message("[server\n")


def test_a_missing_model_file_names_the_path_that_was_tried() -> None:
    """The absolute path shows where a relative one led."""
    assert "there is none at /srv/line/m.onnx: correct the path" in message('[lane.a]\nmodel = "m.onnx"')


def test_a_file_that_cannot_be_read_is_one_line_with_a_cure(tmp_path: Path) -> None:
    """A missing file, a directory and bytes that are no text are mistakes of a person."""
    (tmp_path / "latin.toml").write_bytes(b"# \xe9\n")

    for path, said in [
        (tmp_path / "none.toml", "no such file or directory: name a readable config file"),
        (tmp_path, "is no file: name a readable config file"),
        (tmp_path / "latin.toml", "byte 2 is not UTF-8: save the file as UTF-8"),
    ]:
        with pytest.raises(ConfigError, match=re.escape(f"{path}: {said}")):
            load_config(path)


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("ipc://@slotline", "an abstract name (@) is open to every user"),
        ("ipc://*", "a path that clients can name"),
        ("inproc://x", "ipc://PATH or tcp://ADDRESS:PORT"),
        ("tcp://127.0.0.1", "a port from 0 to 65535"),
        ("tcp://127.0.0.1:65536", "a port from 0 to 65535"),
        ("tcp://localhost:5555", "write 127.0.0.1"),
        ("tcp://0.0.0.0:5555", "or server.insecure = true"),
        ("tcp://*:5555", "or server.insecure = true"),
        ("tcp://[::]:5555", "or server.insecure = true"),
    ],
)
def test_an_endpoint_that_cannot_or_must_not_be_bound_is_refused(endpoint: str, said: str) -> None:
    """Only ipc paths and TCP addresses of this machine pass without a word of consent."""
    assert said in message(f'[server]\nendpoint = "{endpoint}"\n[lane.a]')


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:5555", "tcp://[::1]:5555", "tcp://127.0.0.1:*"])
def test_a_loopback_address_needs_no_consent(endpoint: str) -> None:
    """Nobody else reaches it."""
    assert parse(f'[server]\nendpoint = "{endpoint}"\n[lane.a]').server.endpoint == endpoint


def test_an_open_address_is_bound_on_an_explicit_word() -> None:
    """insecure = true is that word."""
    server = parse('[server]\nendpoint = "tcp://0.0.0.0:5555"\ninsecure = true\n[lane.a]').server

    assert server.endpoint == "tcp://0.0.0.0:5555"


def test_an_ipc_path_is_counted_in_bytes_with_its_control_socket() -> None:
    """99 bytes are the limit, because `.control` comes behind; with an own control endpoint 107."""
    fits, too_long = "/" + "a" * 98, "/" + "a" * 99

    assert parse(f'[server]\nendpoint = "ipc://{fits}"\n[lane.a]').server.control == f"ipc://{fits}.control"
    assert "at most 99 bytes" in message(f'[server]\nendpoint = "ipc://{too_long}"\n[lane.a]')
    assert parse(f'[server]\nendpoint = "ipc://{too_long}"\ncontrol = "ipc:///c"\n[lane.a]')
    assert "has 108 bytes" in message(f'[server]\nendpoint = "ipc:///{"a" * 107}"\ncontrol = "ipc:///c"\n[lane.a]')
    assert "at most 107 bytes" in message(f'[server]\nendpoint = "ipc:///{"é" * 54}"\n[lane.a]')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[server]\ncontrol = "ipc://run/slotline.ipc"\n[lane.a]', "another endpoint than server.endpoint"),
        ('[server]\ncontrol = "tcp://127.0.0.1:*"\n[lane.a]', "a port that clients know"),
        ('[server]\ncontrol = "tcp://127.0.0.1:0"\n[lane.a]', "a port that clients know"),
        ("[server]\nheartbeat_timeout_ms = 1000\n[lane.a]", "more than server.heartbeat_ms = 1000"),
        ("[server]\nmax_budget_us = 10\n[lane.a]", "at most server.max_budget_us = 10"),
        ("[server]\nmax_message_bytes = 100_000\n[lane.a]", "at most server.max_message_bytes = 100000: raise that too"),
        (
            '[server]\nendpoint = "tcp://127.0.0.1:7000"\n[lane.a]\nmax_age_us = 1',
            "0 with a TCP endpoint: a sender elsewhere has another clock",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused(text: str, said: str) -> None:
    """Each is allowed alone; together they cannot work."""
    assert said in message(text)


@pytest.mark.parametrize(
    "processes",
    [
        '["decode"]',
        '[["decode", "preprocess"]]',
        '[["preprocess"], ["decode"], ["postprocess"]]',
        '[["decode", "preprocess"], [], ["postprocess"]]',
        '[["decode", "preprocess", "infer", "postprocess"]]',
        '[["decode", "decode", "preprocess", "postprocess"]]',
    ],
)
def test_a_cut_that_is_no_partition_of_the_stages_in_order_is_refused(processes: str) -> None:
    """Each stage of the lane is in exactly one process, in the order of the work."""
    expected = "expected lists that make up ['decode', 'preprocess', 'postprocess'] in this order"

    assert message(f"[lane.a]\nprocesses = {processes}").endswith(expected)


def test_replicas_count_the_process_that_has_the_stage() -> None:
    """Any stage of a process may name it; a process nobody names has one copy."""
    cut = 'processes = [["decode", "preprocess"], ["postprocess"]]\n'

    assert parse_lane(cut + "replicas = { preprocess = 3 }").process_replicas == (3, 1)
    assert parse_lane(cut + "replicas = { decode = 2, postprocess = 4 }").process_replicas == (2, 4)


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ("{ infer = 2 }", "lane.a.replicas.infer: unknown"),
        ("{ decode = 65 }", "lane.a.replicas.decode = 65: expected a whole number from 1 to 64"),
        ("{ decode = 2, preprocess = 3 }", "they share a process"),
    ],
)
def test_replicas_that_cannot_be_are_refused(replicas: str, said: str) -> None:
    """The stage must exist, the count be in range, and one process have one count."""
    assert said in message(f"[lane.a]\nreplicas = {replicas}")


def test_lanes_that_share_workers_need_equal_processes_and_replicas() -> None:
    """The same processes cannot be cut in two ways."""
    a, b = "[lane.a]\nworkers = 'w'\n", "[lane.b]\nworkers = 'w'\n"

    assert [lane.workers for lane in parse(a + b).lanes] == ["w", "w"]
    assert "the same processes and replicas as lane.a" in message(a + b + "replicas = { decode = 2 }")


def test_a_users_function_makes_a_lane_not_idempotent_unless_the_file_says_so() -> None:
    """Ours may run twice after a death; theirs only on their word."""
    users = '[lane.a.postprocess]\nuse = "mine:stage"'

    assert parse_lane("").idempotent
    assert not parse_lane(users).idempotent
    assert parse_lane(f"idempotent = true\n{users}").idempotent


def test_the_other_keys_of_a_users_stage_are_its_parameters() -> None:
    """They are handed on as they stand."""
    stage = parse_lane('[lane.a.postprocess]\nuse = "a.b:c"\nlimit = 0.5\nnames = ["x"]').postprocess

    assert stage.is_user_function
    assert stage.params == {"limit": 0.5, "names": ["x"]}


def test_a_decode_table_without_use_reads_images_in_rgb_as_stored() -> None:
    """The defaults of a built-in are filled in, so that its code needs none."""
    stage = parse_lane("[lane.a.decode]").decode

    assert (stage.use, stage.params) == (
        "image",
        {
            "color": "rgb",
            "orientation": "stored",
            "formats": ("jpeg", "png", "bmp", "webp", "gif", "tiff"),
            "alpha": "drop",
            "depth": 8,
            "pixel_format": "auto",
            "memory_limit_mb": 0,
        },
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("formats = []", "lane.a.decode.formats = []: expected a list of some of jpeg, png, bmp, webp, gif, tiff"),
        ('formats = ["jpeg", "jpeg"]', "expected a list of some of"),
        ('formats = ["heic"]', "expected a list of some of"),
        ('formats = "jpeg"', "expected a list of some of"),
        ("depth = 12", "lane.a.decode.depth = 12: expected 8 or 16"),
        ("depth = true", "expected 8 or 16"),
        ('pixel_format = "mono8"', '"Mono8"'),
        ('alpha = "blend"', 'expected "drop" or "black" or "white"'),
    ],
)
def test_what_no_decode_table_may_say_is_told(line: str, said: str) -> None:
    """With what it may say."""
    assert said in message(f"[lane.a.decode]\n{line}")


def test_an_images_formats_keep_the_order_in_which_they_are_named() -> None:
    """It is how errors name them."""
    assert parse_lane('[lane.a.decode]\nformats = ["png", "jpeg"]').decode.params["formats"] == ("png", "jpeg")


def test_outputs_declare_name_dtype_and_the_largest_shape() -> None:
    """max_shape is the shape itself when no size is open."""
    fixed = parse_lane(OUTPUTS % 'name = "x", dtype = "FP32", shape = [1, 8]').preprocess.outputs[0]
    opened = parse_lane(OUTPUTS % 'name = "x", dtype = "UINT8", shape = [-1, 3], max_shape = [9, 3]').preprocess.outputs[0]

    assert (fixed.dtype, fixed.shape, fixed.max_shape) == (DType.FP32, (1, 8), (1, 8))
    assert (opened.shape, opened.max_shape) == ((-1, 3), (9, 3))


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ('name = "x", dtype = "FP32"', "outputs.0.shape: missing"),
        ('name = "x", dtype = "FP31", shape = [1]', 'outputs.0.dtype = "FP31"'),
        ('name = "x", dtype = "FP32", shape = [0]', "sizes from 1, or -1"),
        ('name = "x", dtype = "FP32", shape = [1, 1, 1, 1, 1, 1, 1, 1, 1]', "a list of 1 to 8 whole numbers"),
        ('name = "x", dtype = "FP32", shape = [-1]', "outputs.0.max_shape: missing"),
        ('name = "x", dtype = "FP32", shape = [-1, 2], max_shape = [4, 3]', "with each -1 replaced"),
        ('name = "x", dtype = "BYTES", shape = [1]', "outputs.0.max_bytes: needed for dtype BYTES"),
        ('name = "x", dtype = "FP32", shape = [1], max_bytes = 4', "and for no other"),
        ('name = "x", dtype = "FP32", shap = [1]', 'did you mean "shape"?'),
    ],
)
def test_an_output_that_cannot_be_reserved_is_refused(output: str, said: str) -> None:
    """The slot's bytes are known at start, or the server does not start."""
    assert said in message("[lane.a]\n" + OUTPUTS % output)


def test_a_users_decode_or_preprocess_must_declare_outputs() -> None:
    """Nobody else knows what they write; the line shows how."""
    assert "outputs = [{ name =" in message('[lane.a.decode]\nuse = "mine:stage"')


def test_a_built_in_declares_its_own_outputs() -> None:
    """A declaration that nobody reads is a mistake."""
    outputs = 'outputs = [{ name = "x", dtype = "FP32", shape = [1] }]'

    assert "only a user's function declares them" in message(f'[lane.a.preprocess]\nuse = "none"\n{outputs}')


def test_a_hostile_name_cannot_break_the_line_or_the_terminal() -> None:
    """Control characters of the file come out escaped."""
    assert message('[lane.a]\n"x\\n\\u001b[2J" = 1').startswith("lane.a.x\\x0a\\x1b[2J: unknown")


def test_every_field_says_what_is_allowed_its_default_and_why() -> None:
    """No field is left without words, and none is listed twice."""
    table = field_table()

    assert all(all(cell.strip() for cell in row) for row in table)
    assert all(why.endswith(".") and len(why) >= 20 for *_, why in table)
    assert len({(section, name) for section, name, *_ in table}) == len(table)


def test_every_duration_and_size_of_the_table_names_its_unit() -> None:
    """A name's unit and the documented unit agree."""
    units = {"_s": "Seconds", "_ms": "Milliseconds", "_us": "Microseconds", "_bytes": "Bytes", "_microseconds": "Microseconds"}
    rows = [(name, why) for _, name, _, _, why in field_table()]

    for suffix, unit in units.items():
        assert all(why.startswith(f"{unit}. ") for name, why in rows if name.endswith(suffix))


def test_the_config_is_read_without_zmq_and_numpy() -> None:
    """The supervisor, which lives longest and must stay small, reads it too."""
    program = "import schemas.config, sys; print([m for m in ('zmq', 'numpy', 'structlog') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)

    assert run.stdout.strip() == "[]"


def test_the_docs_list_every_field_as_it_is() -> None:
    """operations.md is what `python docs/config_reference.py` writes, sample and tables."""
    command = [sys.executable, "-c", "import config_reference as c; print(c.page(c.PAGE.read_text(encoding='utf-8')), end='')"]
    run = subprocess.run(command, cwd=ROOT / "docs", capture_output=True, text=True, check=True, timeout=60)

    assert run.stdout == (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
