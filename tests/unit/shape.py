"""The rules of the tree's shape, checked on the syntax tree alone: nothing is imported, so a broken module is checked too."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40
MAX_PARAMETERS = 6
# The constructors that users see: what a client can be told, all but the endpoint by keyword.
MAX_CLIENT_OPTIONS = 8
_CLIENTS = ("clients/client.py", "clients/aio.py")
PACKAGES = ("schemas", "broker", "stages", "clients")
# What each layer may import of ours. run.py alone knows all of them.
MAY_IMPORT: Mapping[str, tuple[str, ...]] = {
    "schemas": ("schemas",),
    "broker": ("schemas", "broker"),
    "stages": ("schemas", "stages"),
    "clients": ("schemas", "clients"),
}
# Decisions without effects: no socket, no clock, no logger.
PURE = (
    "broker/core.py", "broker/admission.py", "broker/slots.py", "broker/lanes.py", "broker/window.py", "broker/metrics.py",
    "broker/life.py", "broker/endings.py", "broker/refusals.py", "broker/key_lines.py", "broker/probes.py", "broker/alarms.py",
    "broker/leases.py", "broker/leased_inputs.py", "broker/marks.py", "broker/suspects.py", "broker/restarts.py",
    "stages/decode.py", "stages/preprocess.py", "stages/postprocess.py", "stages/batcher.py", "stages/resize.py",
    "stages/resize_plan.py", "stages/link_plan.py", "stages/lane_plan.py", "stages/worker_plan.py", "stages/device_choice.py",
    "stages/taking.py",
    "clients/session.py", "clients/leases.py", "clients/resend.py", "clients/rare_replies.py", "clients/many.py",
)  # fmt: skip
NOT_IN_PURE = ("zmq", "time", "structlog", "logging", "schemas.logs")
# The supervisor reads the config and restarts; it stays small, so neither it nor what it imports of ours loads these.
LIGHT = ("broker/supervisor.py", "broker/restarts.py", "schemas/config*.py")
NOT_IN_LIGHT = ("zmq", "numpy")
# cupy is loaded by these alone: the device itself, and the child process that looks for one. And these alone load the device.
CUPY = ("stages/device_cuda.py", "stages/gpu_probe.py")
CUDA = ("stages/cuda_engine.py", "stages/gpu_probe.py")
# Who may load the GPU's engine: the function that makes a lane's engine, which the inference process alone calls.
CUDA_ENGINE = ("stages/steps.py",)
# Names of the standard library that a module of ours would hide when its directory is on the path.
BAD_NAMES = ("http", "queue", "types", "select", "trace", "logging", "utils")

Sources = Mapping[str, str]


def read_sources(root: Path) -> dict[str, str]:
    """Return relative path -> text of every module of ours except generated code."""
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    paths += [path for path in (root / "run.py",) if path.exists()]
    names = {path: path.relative_to(root).as_posix() for path in paths}
    return {name: path.read_text(encoding="utf-8") for path, name in names.items() if not name.startswith("schemas/fb/")}


def imports(path: str, text: str) -> set[str]:
    """Return the dotted names that the module *path* imports when it runs: those for the type checker alone do not count."""
    found: set[str] = set()
    for node in _running(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            head = _absolute(path, node)
            found |= {head} | {f"{head}.{alias.name}" for alias in node.names}
    return found


def _absolute(path: str, node: ast.ImportFrom) -> str:
    """Return the module that *node* imports from; a relative one starts at the package of *path*."""
    if node.level == 0:
        return node.module or ""
    package = path.split("/")[:-1]
    start = package[: len(package) - node.level + 1]
    return ".".join([*start, *([node.module] if node.module else [])])


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below *node*, without the bodies of ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from _running(child)


def _names(module: str, name: str) -> bool:
    """Return whether importing *name* loads *module*."""
    return name == module or name.startswith(module + ".")


def layer_faults(sources: Sources) -> list[str]:
    """Return each import that crosses a layer."""
    faults = []
    for path, text in sources.items():
        layer = path.split("/")[0]
        if layer not in MAY_IMPORT:
            continue
        for name in sorted(imports(path, text)):
            top = name.split(".")[0]
            if top in (*PACKAGES, "run") and top not in MAY_IMPORT[layer]:
                faults.append(f"{path} imports {name}")
    return faults


def pure_faults(sources: Sources) -> list[str]:
    """Return each import of a socket, clock or logger in a pure module."""
    return [
        f"{path} imports {name}"
        for path in PURE
        for name in sorted(imports(path, sources.get(path, "")))
        if any(_names(module, name) for module in NOT_IN_PURE)
    ]


def light_faults(sources: Sources) -> list[str]:
    """Return each way by which a light module loads zmq or numpy, also through other modules of ours."""
    starts = [path for path in sources if any(fnmatch(path, pattern) for pattern in LIGHT)]
    return [fault for start in starts for fault in _loads(start, sources)]


def cuda_faults(sources: Sources) -> list[str]:
    """Return each import of cupy, or of a module that loads it, outside of the few that may; by name in a call counts too."""
    walls = (("cupy", CUPY), ("stages.device_cuda", CUDA), ("stages.cuda_engine", CUDA_ENGINE))
    return [
        f"{path} imports {module}"
        for path, text in sources.items()
        for module, allowed in walls
        if path not in allowed and any(_names(module, name) for name in imports(path, text) | _named_in_calls(text))
    ]


def _named_in_calls(text: str) -> set[str]:
    """Return the string that each call has as its first argument: ``import_module("cupy")`` imports as well."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and node.args]
    first = [call.args[0] for call in calls]
    return {arg.value for arg in first if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}


def _loads(start: str, sources: Sources) -> list[str]:
    """Return the heavy imports that *start* reaches."""
    faults, seen, waiting = [], {start}, [start]
    while waiting:
        path = waiting.pop()
        for name in sorted(imports(path, sources[path])):
            if any(_names(module, name) for module in NOT_IN_LIGHT):
                faults.append(f"{start} loads {name} through {path}")
            new = [module for module in _modules(name, sources) if module not in seen]
            seen.update(new)
            waiting += new
    return faults


def _modules(name: str, sources: Sources) -> list[str]:
    """Return the paths of ours that importing *name* runs, its packages included."""
    parts = name.split(".")
    heads = ["/".join(parts[: index + 1]) for index in range(len(parts))]
    return [path for head in heads for path in (f"{head}.py", f"{head}/__init__.py") if path in sources]


def size_faults(sources: Sources) -> list[str]:
    """Return each file and function that is too long, and each function with too many parameters."""
    faults = []
    for path, text in sources.items():
        lines = len(text.splitlines())
        if lines > MAX_FILE_LINES:
            faults.append(f"{path} has {lines} lines, at most {MAX_FILE_LINES}")
        for function in _functions(text):
            where = f"{path}:{function.lineno} {function.name}"
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > MAX_FUNCTION_LINES:
                faults.append(f"{where} has {length} lines, at most {MAX_FUNCTION_LINES}")
            most = MAX_CLIENT_OPTIONS if path in _CLIENTS and function.name == "__init__" else MAX_PARAMETERS
            if len(_parameters(function)) > most:
                faults.append(f"{where} has {len(_parameters(function))} parameters, at most {most}")
    return faults


def annotation_faults(sources: Sources) -> list[str]:
    """Return each parameter and result without a type."""
    faults = []
    for path, text in sources.items():
        for function in _functions(text):
            where = f"{path}:{function.lineno} {function.name}"
            every = [*_parameters(function), *(arg for arg in (function.args.vararg, function.args.kwarg) if arg is not None)]
            faults += [f"{where}: {arg.arg} has no type" for arg in every if arg.annotation is None]
            if function.returns is None:
                faults.append(f"{where}: the result has no type")
    return faults


def name_faults(sources: Sources) -> list[str]:
    """Return each module or package whose name hides one of the standard library or says nothing."""
    return [path for path in sources if any(part.removesuffix(".py") in BAD_NAMES for part in path.split("/"))]


def twin_faults(paths: Iterable[str]) -> list[str]:
    """Return the modules of tests that share a name: pytest imports all of them as top-level ones, and refuses the second.

    Each directory may have its own ``conftest.py``: pytest forgets one before it takes the next.
    """
    by_name: dict[str, list[str]] = {}
    for path in sorted(paths):
        by_name.setdefault(path.rpartition("/")[2], []).append(path)
    return [" and ".join(twins) for name, twins in by_name.items() if len(twins) > 1 and name != "conftest.py"]


def _functions(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """Return the named parameters, without the ``self`` or ``cls`` of a method."""
    args = [*function.args.posonlyargs, *function.args.args]
    own = args[1:] if args and args[0].arg in ("self", "cls", "kls") else args
    return own + function.args.kwonlyargs
