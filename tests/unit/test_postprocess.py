"""A user's function is found by its name, and what it returns is checked before anyone believes it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from schemas.status import Code, ConfigError, RequestError
from stages.postprocess import load_function, real_shapes

WriteModule = Callable[[str], str]

KEY = "lane.qc.postprocess.use"
DECLARED = {"verdict": (1,), "boxes": (32, 6)}
# Python keeps what it imported: each module needs a name of its own.
_numbers = count()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteModule:
    """Return a writer of user modules, each under a name of its own."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str) -> str:
        name = f"rules_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return name

    return write


def config_error(spec: str) -> str:
    """Return the one line with which *spec* is refused."""
    with pytest.raises(ConfigError) as caught:
        load_function(spec, key=KEY)
    line = str(caught.value)
    assert "\n" not in line
    assert KEY in line
    return line


def code_of(returned: object) -> Code:
    """Return the code with which a returned value is refused."""
    with pytest.raises(RequestError) as caught:
        real_shapes(returned, DECLARED)
    return caught.value.code


def test_a_function_is_found_by_module_and_name(module: WriteModule) -> None:
    """And is the very function."""
    name = module("def verdict(inputs, outputs, params):\n    return {'verdict': (1,)}\n")

    assert load_function(f"{name}:verdict", key=KEY)({}, {}, None) == {"verdict": (1,)}


def test_setup_gets_the_stages_config_before_the_first_call(module: WriteModule) -> None:
    """It is optional."""
    name = module(
        "def setup(config):\n    global limit\n    limit = config['limit']\ndef stage(i, o, p):\n    return {'x': (limit,)}\n"
    )

    assert load_function(f"{name}:stage", key=KEY, config={"limit": 3})({}, {}, None) == {"x": (3,)}


@pytest.mark.parametrize("spec", ["", "verdict", "rules:", ":verdict"])
def test_a_name_without_both_parts_is_refused(spec: str) -> None:
    """The error shows an example."""
    assert "module:function" in config_error(spec)


@pytest.mark.parametrize(
    ("spec", "missing"),
    [
        ("no_such_rules:verdict", "no_such_rules.py"),
        ("no_such_rules.deep:verdict", "the package no_such_rules"),
        ("json.no_such:verdict", "json/no_such.py"),
    ],
)
def test_a_missing_module_is_named_with_the_cure(spec: str, missing: str) -> None:
    """The whole module or a part of its path."""
    assert config_error(spec).endswith(f"put {missing} beside the config file, or install it")


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("verdict()", "takes 0 arguments"),
        ("verdict(inputs)", "takes 1 argument"),
        ("verdict(a, b, c, d)", "takes 4 arguments"),
        ("verdict(a, b, c, *, d)", "missing a required argument: 'd'"),
    ],
)
def test_a_function_of_other_arguments_is_refused_at_start(module: WriteModule, head: str, said: str) -> None:
    """Not with each request."""
    line = config_error(module(f"def {head}: ...\n") + ":verdict")

    assert line.endswith(f": {said}, expected 3: (inputs, outputs, params)")


@pytest.mark.parametrize("head", ["verdict(*all)", "verdict(a, b, c, d=4)", "verdict(a, b, c, **more)"])
def test_a_function_that_can_be_called_with_three_arguments_is_taken(module: WriteModule, head: str) -> None:
    """Whatever else it takes."""
    assert callable(load_function(module(f"def {head}: ...\n") + ":verdict", key=KEY))


def test_what_a_module_prints_at_its_start_goes_to_stderr(module: WriteModule, capsys: pytest.CaptureFixture[str]) -> None:
    """The process that makes the plan writes it to stdout."""
    name = module("print('imported')\ndef setup(config): print('set up')\ndef verdict(i, o, p): ...\n")
    load_function(f"{name}:verdict", key=KEY)

    assert capsys.readouterr() == ("", "imported\nset up\n")


def test_a_module_that_misses_another_names_that_one(module: WriteModule) -> None:
    """The user's own module is there."""
    line = config_error(module("import no_such_library\n") + ":verdict")

    assert "needs no_such_library" in line


@pytest.mark.parametrize("text", ["def broken(:\n", "1 / 0\n"])
def test_a_module_that_cannot_be_imported_says_why(module: WriteModule, text: str) -> None:
    """In one line."""
    assert "importing it fails" in config_error(module(text) + ":verdict")


@pytest.mark.parametrize("text", ["", "verdict = 3\n"])
def test_a_missing_function_is_named(module: WriteModule, text: str) -> None:
    """Also when the name is something else."""
    assert "has no function verdict" in config_error(module(text) + ":verdict")


def test_a_failing_setup_is_named(module: WriteModule) -> None:
    """It is the user's code: a person corrects it."""
    name = module("def setup(config):\n    raise ValueError('limit missing')\ndef verdict(i, o, p): ...\n")

    assert "ValueError: limit missing" in config_error(f"{name}:verdict")


def test_nothing_returned_means_the_declared_shapes() -> None:
    """None for all, a missing name for one."""
    assert real_shapes(None, DECLARED) == DECLARED
    assert real_shapes({"boxes": (2, 6)}, DECLARED) == {"verdict": (1,), "boxes": (2, 6)}


def test_numpy_integers_and_lists_are_shapes_too() -> None:
    """The result is plain tuples of int."""
    shape = real_shapes({"boxes": [np.int64(0), 6]}, DECLARED)["boxes"]

    assert shape == (0, 6)
    assert {type(dim) for dim in shape} == {int}


def test_a_shape_beyond_its_maximum_is_too_large() -> None:
    """The view it was written to has no such rows."""
    assert code_of({"boxes": (33, 6)}) is Code.OUTPUT_TOO_LARGE


@pytest.mark.parametrize(
    "returned",
    [
        (1,),
        "verdict",
        {"other": (1,)},
        {"boxes": (6,)},
        {"boxes": (-1, 6)},
        {"boxes": (2.0, 6)},
        {"boxes": (True, 6)},
        {"boxes": 6},
        {1: (1,)},
    ],
)
def test_anything_else_is_the_models_failure(returned: object) -> None:
    """Not a mapping, an unknown name, another rank, dimensions that are none."""
    assert code_of(returned) is Code.MODEL_FAILED


@pytest.mark.parametrize("returned", [np.zeros(1), 0.97, {"verdict": 0.97}, {"boxes": (6,)}])
def test_values_instead_of_shapes_are_told_where_they_belong(returned: object) -> None:
    """The first mistake of everybody."""
    with pytest.raises(RequestError, match=r"got .+; write values into outputs, return shapes"):
        real_shapes(returned, DECLARED)
