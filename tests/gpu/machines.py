"""Machines for the probe: a scripted driver, and packages that are only what the probe looks at."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

FAKE_DRIVER = Path(__file__).with_name("fake_driver.c")
ONNXRUNTIME = """
def get_available_providers(): return {providers}
def preload_dlls(): pass
class SessionOptions:
    def add_session_config_entry(self, key, value): assert (key, value) == ("session.disable_cpu_ep_fallback", "1")
class InferenceSession:
    def __init__(self, model, options, providers):
        {opened}
        assert providers == [("CUDAExecutionProvider", {{"device_id": "0"}})]
    def disable_fallback(self): pass
    def get_providers(self): return ["CUDAExecutionProvider", "CPUExecutionProvider"]
    def run(self, names, feeds): return [feeds["x"] * {factor}]
"""
CUPY = """
class cuda:
    class runtime:
        runtimeGetVersion = staticmethod(lambda: {version})
"""


class Machine:
    """What a process finds that is started now: changes the environment until the test's end."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._patch = monkeypatch
        monkeypatch.setenv("PYTHONPATH", str(directory))

    def driver(self, **settings: int) -> None:
        """Give it a driver: cuda=13000, gpus=1, cuinit=0, hangs=0, crashes=0."""
        library = self._directory / "libcuda.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(FAKE_DRIVER)], check=True, timeout=60)
        self._patch.setenv("LD_LIBRARY_PATH", str(self._directory) + os.pathsep + os.environ.get("LD_LIBRARY_PATH", ""))
        for name, value in settings.items():
            self._patch.setenv(f"FAKE_{name.upper()}", str(value))

    def distribution(self, name: str, version: str) -> None:
        """Let a distribution be installed, by its metadata alone."""
        info = self._directory / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def onnxruntime(self, cuda: str, *, opened: str = "", factor: int = 2, missing: str = "") -> None:
        """Let ``import onnxruntime`` find one built for *cuda* ("" = none); *missing* is a library its provider needs."""
        capi = self._module("onnxruntime/capi")
        providers = ["CUDAExecutionProvider"] if cuda else ["CPUExecutionProvider"]
        text = ONNXRUNTIME.format(providers=providers, opened=opened or "pass", factor=factor)
        (capi.parent / "__init__.py").write_text(text)
        (capi / "build_and_package_info.py").write_text(f"cuda_version = {cuda!r}\n")
        for name in ("shared", "cuda"):
            self._library(capi / f"libonnxruntime_providers_{name}.so", missing if name == "cuda" else "")

    def cupy(self, version: int) -> None:
        """Let ``import cupy`` find one for CUDA *version* (13000 is 13.0)."""
        (self._module("cupy") / "__init__.py").write_text(CUPY.format(version=version))

    def broken(self, name: str, why: str) -> None:
        """Let the import of *name* fail."""
        (self._module(name) / "__init__.py").write_text(f"raise ImportError({why!r})\n")

    def _module(self, path: str) -> Path:
        directory = self._directory / path
        directory.mkdir(parents=True)
        (directory / "__init__.py").touch()
        return directory

    def _library(self, path: Path, needs: str) -> None:
        """Build an empty shared library that needs another one, which is then removed."""
        needed = []
        if needs:
            subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", str(self._directory / needs), f"-Wl,-soname,{needs}"],
                           check=True, timeout=60)  # fmt: skip
            needed = ["-Wl,--no-as-needed", str(self._directory / needs)]
        subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-x", "none", "-o", str(path), *needed], check=True, timeout=60)
        if needs:
            (self._directory / needs).unlink()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return a machine with this one's packages and without a driver, to be changed."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: the test's driver cannot be built")
    return Machine(tmp_path, monkeypatch)
