"""NVIDIA's runtime compiler from its wheel (nvidia-cuda-nvrtc), through ctypes: it needs neither GPU nor driver."""

from __future__ import annotations

import ctypes
from importlib import metadata
from pathlib import Path

# One for each major version of CUDA: either compiles what we have.
DISTRIBUTIONS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")


def find_library() -> Path | None:
    """Return the path of libnvrtc in an installed wheel, None when there is none."""
    for name in DISTRIBUTIONS:
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name.startswith("libnvrtc.so"):
                return Path(str(file.locate()))
    return None


class Nvrtc:
    """A loaded compiler."""

    def __init__(self, path: Path) -> None:
        # Its built-in headers are a library beside it, which it finds by name only when that is loaded already.
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so*")):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(str(path))

    @property
    def version(self) -> str:
        """Its version, for example 13.0."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def compile(self, source: str, options: tuple[str, ...]) -> bytes:
        """Return the machine code of *source*.

        Raises:
            ValueError: it does not compile; with the compiler's own words.
        """
        program = ctypes.c_void_p()
        text = ctypes.create_string_buffer(source.encode())
        self._library.nvrtcCreateProgram(ctypes.byref(program), text, b"preprocess.cu", 0, None, None)
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            if self._library.nvrtcCompileProgram(program, len(options), given) != 0:
                raise ValueError(self._bytes(program, "ProgramLog").decode(errors="replace"))
            return self._bytes(program, "CUBIN")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        """Return one of a program's results."""
        size = ctypes.c_size_t()
        getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        room = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvrtcGet{what}")(program, room)
        return room.raw
