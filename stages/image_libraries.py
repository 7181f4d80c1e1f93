"""The image libraries, imported only where images are decoded, and what they raise turned into refusals."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import NamedTuple

from schemas.status import Code, ConfigError, RequestError


class Decoders(NamedTuple):
    """simplejpeg, and Pillow's Image module."""

    simplejpeg: ModuleType
    image: ModuleType


@cache
def load_decoders() -> Decoders:
    """Import the image libraries; a stage calls it at its start so that a missing one is met there.

    Raises:
        ConfigError: one is not installed.
    """
    try:
        import simplejpeg
        from PIL import Image
    except ImportError as error:
        raise ConfigError(f"the decode stage needs simplejpeg and Pillow ({error}): pip install 'slotline[cpu]'") from error
    # Without any handler, Python writes what Pillow logs about a peer's file to our stderr.
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    return Decoders(simplejpeg, Image)


@contextmanager
def library_errors(decoders: Decoders) -> Iterator[None]:
    """Turn whatever a decoder raises into a refusal of this image."""
    with warnings.catch_warnings():
        # A peer's file must not write to our stderr; the bomb warning alone is a reason to stop.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", decoders.image.DecompressionBombWarning)
        try:
            yield
        except RequestError:
            raise
        except MemoryError as error:
            raise no_memory() from error
        # On hostile bytes Pillow raises OSError, SyntaxError, struct.error, zlib.error, KeyError, ... and promises no list.
        except Exception as error:
            # Pillow names its file object with its address, which is no peer's business.
            reason = str(error).partition(" <")[0]
            # libjpeg and libwebp tell it in words only.
            if "memory" in reason.lower():
                raise no_memory() from error
            raise RequestError(Code.BAD_IMAGE, field="image", expected="a whole image", got=reason) from error


def no_memory() -> RequestError:
    """Return the answer to a picture for which there is no memory; the process goes on."""
    return RequestError(Code.OUT_OF_MEMORY, field="image", message="image: no memory to decode it (memory_limit_mb)")
