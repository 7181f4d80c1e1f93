"""A user's function as a stage: find it by ``module:function``, and check what it returns.

The contract: ``def stage(inputs, outputs, params) -> Mapping[str, tuple] | None``. *inputs* are not to be written; *outputs* are
preallocated views of each output's declared maximum shape, written in place; the return value gives the real shapes, where a name
left out (or None for all) means the full shape. It may raise RequestError. An optional ``setup(config)`` beside it is called once
at start. For users it is told in docs/functions.md.
No built-in functions here.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.status import Code, ConfigError, RequestError, printable

Shape = tuple[int, ...]
Tensors = Mapping[str, NDArray[Any]]
Stage = Callable[[Tensors, Tensors, Any], Mapping[str, Shape] | None]

ARGUMENTS = ("inputs", "outputs", "params")
CURE = "write values into outputs, return shapes"
_NO_CONFIG: Mapping[str, object] = MappingProxyType({})


def prefer_modules_in(directory: Path) -> None:
    """Let a module in *directory*, the config file's, be found before an installed one of the same name, as beside a script."""
    if sys.path[:1] != [str(directory)]:
        sys.path.insert(0, str(directory))


def load_function(spec: str, *, key: str, config: Mapping[str, object] = _NO_CONFIG) -> Stage:
    """Return the function named "module:function", after its module's ``setup(config)`` where there is one.

    Args:
        spec: for example "surface_qc.rules:verdict".
        key: the config key that holds *spec*, for the error.
        config: what setup gets: the stage's own table of the config.

    Raises:
        ConfigError: one line naming the key, what is missing and the cure.
    """
    module_name, colon, function_name = spec.partition(":")
    if not (module_name and colon and function_name):
        raise ConfigError(f'{key} = "{spec}": expected "module:function", for example "surface_qc.rules:verdict"')
    where = f'{key} = "{spec}"'
    # The process that makes the plan writes it to stdout: what a module prints at its start must not get into it.
    with contextlib.redirect_stdout(sys.stderr):
        module = _import(module_name, where)
        function: Stage | None = getattr(module, function_name, None)
        if not callable(function):
            raise ConfigError(f"{where}: {module.__file__} has no function {function_name}; define it or correct the name")
        _check_arguments(function, where)
        _set_up(module, config, where)
    return function


def _import(name: str, where: str) -> ModuleType:
    """Import the module, telling a missing one from one that fails."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            what = error.name.replace(".", "/") + ".py" if error.name == name else f"the package {error.name}"
            cure = f"put {what} beside the config file, or install it"
            raise ConfigError(f"{where}: there is no module {error.name}; {cure}") from error
        raise ConfigError(f"{where}: the module needs {error.name}, which is not installed; install it") from error
    # User code runs here and may raise anything; a person reads one line, the chained exception keeps the rest.
    except Exception as error:
        raise ConfigError(f"{where}: importing it fails with {_one_line(error)}; correct the module") from error


def _check_arguments(function: Stage, where: str) -> None:
    """Refuse a function that cannot be called with three arguments, now and not with each request."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        # Some functions written in C do not tell; the first call shows.
        return
    try:
        signature.bind(*ARGUMENTS)
    except TypeError as error:
        in_order = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        count = len(in_order)
        takes = f"takes {count} argument{'' if count == 1 else 's'}" if count != len(ARGUMENTS) else str(error)
        expected = f"expected {len(ARGUMENTS)}: ({', '.join(ARGUMENTS)})"
        raise ConfigError(f"{where}: {takes}, {expected}") from None


def _set_up(module: ModuleType, config: Mapping[str, object], where: str) -> None:
    """Call the module's setup, where there is one."""
    setup = getattr(module, "setup", None)
    if not callable(setup):
        return
    try:
        setup(config)
    except Exception as error:
        raise ConfigError(f"{where}: its setup(config) fails with {_one_line(error)}; correct it or its config") from error


def _one_line(error: Exception) -> str:
    """Return type and text of *error*, short and printable."""
    return printable(f"{type(error).__name__}: {error}", 200)


def real_shapes(returned: object, declared: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the real shape of every declared output, checked.

    Args:
        returned: what the user's function returned: a mapping of name to shape, or None.
        declared: maximum shape of each output.

    Raises:
        RequestError: OUTPUT_TOO_LARGE for a dimension above its maximum; MODEL_FAILED for anything else that breaks the contract.
    """
    if returned is None:
        return dict(declared)
    if not isinstance(returned, Mapping):
        expected = "a mapping of output name to shape, or None"
        raise RequestError(Code.MODEL_FAILED, message=f"expected {expected}, got {type(returned).__name__}; {CURE}")
    unknown = [name for name in returned if name not in declared]
    if unknown:
        raise _broken(printable(unknown[0]), f"outputs {', '.join(declared)}", "another name")
    return {name: _checked(name, returned.get(name, most), most) for name, most in declared.items()}


def _checked(name: str, shape: object, most: Shape) -> Shape:
    """Return *shape* as a tuple of Python integers within *most*."""
    if not isinstance(shape, tuple | list) or len(shape) != len(most):
        got = printable(shape)
        raise RequestError(
            Code.MODEL_FAILED, field=name, message=f"{name}: expected a shape of rank {len(most)}, got {got}; {CURE}"
        )
    if not all(isinstance(dim, int | np.integer) and not isinstance(dim, bool) and dim >= 0 for dim in shape):
        raise _broken(name, "dimensions that are integers of 0 or more", shape)
    if any(dim > limit for dim, limit in zip(shape, most, strict=True)):
        raise RequestError(Code.OUTPUT_TOO_LARGE, field=name, expected=f"at most {most}", got=shape)
    return tuple(int(dim) for dim in shape)


def _broken(name: str, expected: object, got: object) -> RequestError:
    """Return the error of a function that does not keep the contract."""
    return RequestError(Code.MODEL_FAILED, field=name, expected=expected, got=got)
