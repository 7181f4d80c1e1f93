"""Slotline's one command line, and the place where its parts are put together. Try ``run.py --help``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from broker.keys import add_arguments as add_key_arguments
from schemas.config import Config, load_config
from schemas.status import VERSION, ConfigError

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
DEMO = "demo"
# Of 24 verdicts; the bare model gets 23.
MIN_RIGHT = 22
# Commands of the source tree that are not installed: their module, and what they do.
TOOLS = {
    "bench": ("bench.command", "measure a server, beside the bare limits and other servers"),
    "chaos": ("bench.chaos.command", "break a server under load in every known way, and count every answer"),
}
EXAMPLES = """examples:
  run.py demo                                   the whole thing in half a minute: 24 part photos and a stream of ticks
  run.py serve my.toml                          serve until SIGTERM; prints one `ready` line
  run.py check my.toml                          what a config comes to: bytes per slot, processes, stages
  run.py infer --endpoint E --model qc a.png    judge files
  run.py status --endpoint E --json             health, ledger and lanes of a running server
  run.py keys client cam1 --out keys            CURVE keys of a client, or of a server; `keys list` who may come in
  run.py bench --help                           throughput and latency of a config, a server, or the shipped workloads
  run.py chaos --help                           kill, stop, starve and flood it under load; 0 only if no answer is lost
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code. A person's mistake is one line on stderr and code 2, a missing device code 3."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        parser = _parser(arguments[0] if arguments else "")
    except ConfigError as error:
        return _give_up(argparse.Namespace(json="--json" in arguments), str(error))
    options = parser.parse_args(arguments)
    if options.command is not _serve and options.command is not _process:
        # An end from outside is an exception like Ctrl-C, so that what was started is ended too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        code: int = options.command(options)
    except ConfigError as error:
        return _give_up(options, str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of our output is gone (`| head`): nothing is wrong with us. But nobody knows of a server that ends for it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        unheard = "stdout: nobody reads the ready line: keep its reader, or send it elsewhere (> ready.txt)"
        return _give_up(options, unheard) if options.command is _serve else 0
    except OSError as error:
        return _give_up(options, f"{error.filename or 'the system'}: {(error.strerror or str(error)).lower()}")
    except MemoryError:
        return _give_up(options, "not enough memory: lower slots, or raise the limit (ulimit -v)")
    except KeyboardInterrupt:
        return 130
    return code


def _give_up(options: argparse.Namespace, reason: str, code: int = 2) -> int:
    """Tell a person in one line why nothing came of it, and a script by one JSON object."""
    print(f"slotline: {reason}", file=sys.stderr)
    if getattr(options, "json", False):
        print(json.dumps({"error": reason}))
    return code


def _seconds(text: str) -> float:
    """Return a timeout from the command line."""
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


def _parser(wanted: str = "") -> argparse.ArgumentParser:
    """Return the parser of all commands; that of a tool of the source tree is complete only when it is *wanted*."""
    prog = "slotline" if Path(sys.argv[0]).name == "slotline" else "run.py"
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Slotline: ONNX models behind a ZeroMQ socket, tensors in shared memory.",
        epilog=EXAMPLES if prog == "run.py" else EXAMPLES.replace("run.py", prog),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"slotline {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = _command(commands, "demo", _demo, "serve the two demo lanes, send real inputs, compare every answer")
    demo.add_argument("--out", type=Path, default=Path("slotline-demo.png"), help="the annotated picture (default: %(default)s)")
    demo.add_argument("--ticks", type=int, default=20_000, help="ticks to send (default: %(default)s)")
    demo.add_argument("--config", default=DEMO, help="another config with the lanes qc and ticks, for example another cut")
    serve = _command(commands, "serve", _serve, "serve a config until SIGTERM")
    serve.add_argument("config", metavar="CONFIG", help="a TOML file, or `demo`")
    serve.add_argument("--endpoint", help="instead of the config's server.endpoint")
    serve.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    serve.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="instead of the config's")
    check = _command(commands, "check", _check, "say what a config comes to, without serving it")
    check.add_argument("config", metavar="CONFIG", help="a TOML file, or `demo`")
    _add_clients(commands)
    keys = commands.add_parser("keys", help="make CURVE key files, list the clients that a server takes")
    add_key_arguments(keys)
    for name, (module, tells) in TOOLS.items():
        tool = commands.add_parser(name, help=tells)
        if name == wanted:
            _complete(tool, name, module)
    process = commands.add_parser("process")
    process.add_argument("spawn", nargs="+")
    process.set_defaults(command=_process)
    return parser


def _add_clients(commands: Commands) -> None:
    """Add the commands that talk to a running server."""
    infer = _command(commands, "infer", _later("clients.commands", "infer"), "send files to a running server")
    infer.add_argument("--endpoint", type=_absolute, required=True, help="for example ipc://run/slotline.ipc")
    infer.add_argument("--model", required=True, help="the lane's name")
    infer.add_argument("--timeout", type=_seconds, default=10.0, help="seconds for each file (default: %(default)s)")
    infer.add_argument("--server-key", type=Path, metavar="FILE", help="public key of a server with CURVE")
    infer.add_argument("--key", type=Path, metavar="FILE", help="then also the client's secret key file")
    infer.add_argument("files", metavar="FILE", nargs="+", type=Path, help="PNG, JPEG, or .npy with the model's one input")
    status = _command(commands, "status", _later("clients.commands", "status"), "health, ledger and lanes of a running server")
    status.add_argument(
        "--endpoint", type=_absolute, required=True, help="the clients' endpoint of an ipc server, or a control endpoint"
    )


def _command(commands: Commands, name: str, function: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
    """Add one command, with its example and --json."""
    line = next(line for line in EXAMPLES.splitlines() if line.startswith(f"  run.py {name} "))
    example = line.strip().split("   ")[0].removeprefix("run.py ")
    command = commands.add_parser(name, help=about, description=about, epilog=f"example: %(prog)s {example.removeprefix(name)}")
    command.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
    command.set_defaults(command=function)
    return command


def _complete(parser: argparse.ArgumentParser, name: str, module: str) -> None:
    """Give a tool's parser its arguments and its command.

    Raises:
        ConfigError: the tool is not here.
    """
    try:
        tool = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "bench":
            raise
        raise ConfigError(f"{name}: comes with the source tree, not with the package; there: python run.py {name}") from None
    tool.add_arguments(parser)
    parser.set_defaults(command=tool.run)


def _later(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """Return a command that is imported when it runs: the supervisor reads its command line without zmq."""

    def command(options: argparse.Namespace) -> int:
        code: int = getattr(importlib.import_module(module), function)(options)
        return code

    return command


# --- commands ----------------------------------------------------------------------------------------------------------------


def _serve(options: argparse.Namespace) -> int:
    """Run the supervisor in this process."""
    from broker.descriptors import check_descriptors
    from broker.notify import ready_line
    from broker.places import Places
    from broker.plan_child import plan_in_child
    from broker.supervisor import Supervisor
    from schemas.leases import socket_beside
    from schemas.logs import configure
    from schemas.spawn import die_with_parent, stop_when_told

    stop_when_told()
    if options.parent:
        die_with_parent(options.parent, signal.SIGTERM)
    config = _load(options.config, options.endpoint)
    log_level = options.log_level or config.server.log_level
    configure("supervisor", log_level)
    control = config.server.control
    leases = socket_beside(config.server.endpoint) if config.leases.count else ""
    places = Places([config.server.endpoint, *([control] if control else []), *([f"ipc://{leases}"] if leases else [])])
    plan = plan_in_child(_child_command(), config)
    check_descriptors(plan)
    try:
        places.claim()

        def on_serving(endpoint: str) -> None:
            at = control or f"ipc://{places.directory}/control"
            print(ready_line(endpoint, at, as_json=options.json), flush=True)

        return Supervisor(config, plan, places, command=_child_command(), log_level=log_level, on_serving=on_serving).run()
    finally:
        places.release()


def _check(options: argparse.Namespace) -> int:
    """Say what a config comes to."""
    from broker.plan_child import plan_in_child
    from stages.describe import check_all, check_text

    config = _load(options.config, None)
    found = check_all(plan_in_child(_child_command(), config), config.leases)
    print(json.dumps(found) if options.json else check_text(found))
    return 0


def _demo(options: argparse.Namespace) -> int:
    """Serve the demo config, send real inputs, compare every answer with a direct run."""
    from clients.annotate import Part, annotate_parts
    from clients.commands import reached
    from clients.demo import run_demo
    from clients.local import local_server
    from stages.demo import parts_path, ticks_path
    from stages.demo.check import check_parts, check_ticks, load_features

    if options.ticks < 1:
        raise ConfigError(f"--ticks: expected 1 or more, got {options.ticks}")
    if not options.out.parent.is_dir() or options.out.is_dir():
        raise ConfigError(f"--out: expected a file in a directory that exists, got {options.out}")
    features, photos = load_features(ticks_path()), parts_path()
    with tempfile.TemporaryDirectory(prefix="slotline-demo-") as directory, reached():
        _progress("starting the server")
        command = [sys.executable, str(Path(__file__).absolute()), "serve", options.config, "--json", "--log-level", "warning"]
        with local_server([*command, "--endpoint", f"ipc://{directory}/slotline.ipc"]) as server:
            run = run_demo(server, photos, features, options.ticks, _progress)
    annotate_parts([Part(p.file, photos / p.file, p.verdict, p.label, p.boxes) for p in run.parts], options.out)
    _progress("comparing every answer with a direct run of the models")
    answers = {p.file: (p.verdict, p.score, p.boxes) for p in run.parts}
    different = check_parts(photos, answers) + check_ticks(features, run.ticks.outputs)
    print(f"{run.to_text()}\ndifferent from a direct run of the models: {different}\npicture: {options.out}")
    if options.json:
        print(json.dumps({**run.to_json(), "different": different, "picture": str(options.out)}))
    return 0 if run.is_complete and not different and run.right >= MIN_RIGHT else 1


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _process(options: argparse.Namespace) -> int:
    """Be one process of a server: what the supervisor starts; or describe a config for it."""
    from schemas.spawn import die_with_parent, read_spawn

    if options.spawn[0] == "describe":
        # It runs a user's code, which may never return: it must not outlive who asked.
        die_with_parent(int(options.spawn[3]))
        from stages.describe import write_plan

        write_plan(Path(options.spawn[1]), options.spawn[2], int(options.spawn[4]))
    spawn = read_spawn(options.spawn[0])
    if spawn.process == -1:
        from broker.server import run_broker

        return run_broker(spawn)
    from stages.worker import run_worker

    run_worker(spawn)
    return 1


# --- pieces ------------------------------------------------------------------------------------------------------------------


def _load(name: str, endpoint: str | None) -> Config:
    """Load a config file, or the demo's."""
    if name != DEMO:
        return load_config(Path(name), _absolute(endpoint))
    from stages.demo import config_path

    return load_config(config_path(), _absolute(endpoint or "ipc://run/slotline.ipc"))


def _absolute(endpoint: str | None) -> str:
    """Let a relative ipc endpoint of the command line start at the current directory, not at the config's."""
    if not endpoint:
        return ""
    path = endpoint.removeprefix("ipc://")
    return endpoint if path == endpoint else f"ipc://{Path(path).absolute()}"


def _child_command() -> list[str]:
    return [sys.executable, str(Path(__file__).absolute()), "process"]


if __name__ == "__main__":
    sys.exit(main())
