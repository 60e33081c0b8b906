"""A package with entry points, as if pip had installed it."""

from importlib.metadata import Distribution
from pathlib import Path

import pytest


def install_distribution(site: Path, name: str, entry_points: str) -> Distribution:
    """Write what an installer writes; `entry_points` is text in the form of `entry_points.txt`."""
    # As pip spells it: what stands before the first hyphen is the name, by which packages are told apart.
    metadata = site / f"{name.replace('-', '_')}-1.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    return Distribution.at(metadata)


def install_package(site: Path, monkeypatch: pytest.MonkeyPatch, name: str, entry_points: str) -> None:
    """Put it on the path too, in a folder of its own."""
    install_distribution(site, name, entry_points)
    monkeypatch.syspath_prepend(str(site))
