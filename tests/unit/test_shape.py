"""The tree keeps its layers and sizes; and the checker sees it when a module does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from shape import (
    MAX_FILE_LINES,
    PURE,
    annotation_faults,
    cuda_faults,
    layer_faults,
    light_faults,
    name_faults,
    pure_faults,
    read_sources,
    size_faults,
    twin_faults,
)

ROOT = Path(__file__).parents[2]


SOURCES = read_sources(ROOT)


def none_of(faults: list[str]) -> None:
    """Fail with one line for each fault."""
    assert not faults, "\n" + "\n".join(faults)


def test_no_layer_imports_what_it_must_not_know() -> None:
    """schemas imports nothing of ours; broker, stages and clients import only schemas."""
    none_of(layer_faults(SOURCES))


def test_decisions_know_no_socket_clock_or_logger() -> None:
    """The pure modules get the time and messages as arguments."""
    none_of(pure_faults(SOURCES))


def test_the_supervisor_and_the_config_load_neither_zmq_nor_numpy() -> None:
    """Also not through other modules of ours."""
    none_of(light_faults(SOURCES))


def test_cupy_belongs_to_the_inference_process() -> None:
    """Nobody else may have a CUDA context: it would take memory on the GPU, and a fork of it would be broken."""
    none_of(cuda_faults(SOURCES))


@pytest.mark.parametrize(
    "text",
    [
        "import cupy",
        "def f():\n    from cupy import cuda",
        'import importlib\nimportlib.import_module("cupy")',
        "from .device_cuda import CudaDevice",
        "from stages import cuda_engine",
    ],
)
def test_the_checker_sees_cupy_elsewhere(text: str) -> None:
    """In whatever form, and through the modules that load it."""
    assert len(cuda_faults({"stages/a.py": text})) == 1
    assert cuda_faults({"stages/device_cuda.py": "import cupy", "stages/cuda_engine.py": "from .device_cuda import x"}) == []


def test_files_and_functions_are_small() -> None:
    """Raise a limit only in a commit that says why."""
    none_of(size_faults(SOURCES))


def test_everything_is_annotated() -> None:
    """Each parameter and each result has a type."""
    none_of(annotation_faults(SOURCES))


def test_no_module_hides_one_of_the_standard_library() -> None:
    """A module named queue would be taken for Python's."""
    none_of(name_faults(SOURCES))


def test_no_two_modules_of_tests_share_a_name() -> None:
    """Helpers count too."""
    none_of(twin_faults(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("schemas/a.py", "import broker.core"),
        ("broker/a.py", "from stages.decode import decode"),
        ("stages/a.py", "def f():\n    import clients"),
        ("clients/a.py", "import run"),
    ],
)
def test_the_checker_sees_a_crossed_layer(path: str, text: str) -> None:
    """An import inside a function counts too."""
    assert len(layer_faults({path: text})) >= 1


def test_the_checker_allows_schemas_and_the_own_package_everywhere() -> None:
    """And run.py all of them."""
    allowed = {
        "broker/a.py": "import schemas.hop\nfrom broker import core\nfrom .lanes import Lane\nimport zmq",
        "run.py": "import broker, stages, clients, schemas",
        "stages/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from broker import core",
    }

    assert layer_faults(allowed) == []


@pytest.mark.parametrize(
    "text", ["import time", "from time import monotonic_ns", "import zmq.asyncio", "from schemas.logs import get_logger"]
)
@pytest.mark.parametrize("path", PURE)
def test_the_checker_sees_an_effect_in_a_pure_module(path: str, text: str) -> None:
    """Whatever the form of the import."""
    assert len(pure_faults({path: text})) >= 1


def test_the_checker_allows_effects_in_the_shell() -> None:
    """The server reads the clock."""
    assert pure_faults({"broker/server.py": "import time, zmq"}) == []


def test_the_checker_sees_numpy_behind_two_modules() -> None:
    """The supervisor imports a, which imports b, which imports numpy; a package's own __init__ counts."""
    chain = {
        "broker/supervisor.py": "from schemas import a",
        "schemas/__init__.py": "",
        "schemas/a.py": "from .b import x",
        "schemas/b.py": "import numpy as np",
    }

    assert light_faults(chain) == ["broker/supervisor.py loads numpy through schemas/b.py"]
    assert light_faults({"schemas/config_new.py": "import schemas.c", "schemas/__init__.py": "import zmq"}) == [
        "schemas/config_new.py loads zmq through schemas/__init__.py"
    ]


def test_the_checker_sees_what_is_too_long() -> None:
    """A file over its limit, a function over its limit, a parameter too many; self is not counted."""
    method = "class A:\n    def f(self, a, b, c, d, e, f): ..."

    assert len(size_faults({"a.py": "\n" * (MAX_FILE_LINES + 1)})) == 1
    assert len(size_faults({"a.py": "def f():\n" + "    x = 1\n" * 40})) == 1
    assert size_faults({"a.py": "def f():\n" + "    x = 1\n" * 39}) == []
    assert len(size_faults({"a.py": "def f(a, b, c, *, d, e, f, g): ..."})) == 1
    assert size_faults({"a.py": method}) == []


def test_the_checker_sees_what_has_no_type() -> None:
    """A parameter, a starred one, a result."""
    assert annotation_faults({"a.py": "def f(a, *b: int) -> None: ..."}) == ["a.py:1 f: a has no type"]
    assert annotation_faults({"a.py": "def f(*b) -> None: ..."}) == ["a.py:1 f: b has no type"]
    assert annotation_faults({"a.py": "async def f(): ..."}) == ["a.py:1 f: the result has no type"]


def test_the_checker_sees_a_bad_name() -> None:
    """As a module or as a package."""
    assert name_faults({"broker/queue.py": "", "stages/utils/a.py": "", "broker/queues.py": ""}) == [
        "broker/queue.py",
        "stages/utils/a.py",
    ]


def test_the_checker_sees_modules_of_tests_that_share_a_name() -> None:
    """Whatever their directories; conftest.py may stand in each."""
    paths = [
        "tests/unit/test_a.py",
        "tests/e2e/test_a.py",
        "tests/wire/test_b.py",
        "tests/e2e/conftest.py",
        "tests/wire/conftest.py",
    ]

    assert twin_faults(paths) == ["tests/e2e/test_a.py and tests/unit/test_a.py"]


def test_generated_code_is_left_out() -> None:
    """Its generator does not know our limits."""
    assert not any(path.startswith("schemas/fb/") for path in SOURCES)
    assert "schemas/config.py" in SOURCES
