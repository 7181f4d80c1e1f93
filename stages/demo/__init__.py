"""The demo: real part photos and market features, their trained models, and what a direct run of these gives."""

from pathlib import Path


def config_path() -> Path:
    """Return the demo's config file."""
    return Path(__file__).parent / "demo.toml"


def parts_path() -> Path:
    """Return the directory of the part photos and their labels."""
    return Path(__file__).parent / "parts"


def ticks_path() -> Path:
    """Return the file of market features."""
    return Path(__file__).parent / "trading_test.npz"
