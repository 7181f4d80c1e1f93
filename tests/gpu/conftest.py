"""The shim, built once per run, and scripted machines."""

from __future__ import annotations

import pytest
from machines import machine

from bench.gpu.shim import Shim, compile_shim, has_compiler

__all__ = ["machine", "shim"]


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    """Return the kernels compiled as C++."""
    if not has_compiler():
        pytest.skip("no g++: the kernel's source cannot run on the CPU")
    return Shim(compile_shim(tmp_path_factory.mktemp("shim")))
