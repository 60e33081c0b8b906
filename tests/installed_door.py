"""A distribution with a door, as if it were installed in a folder: tests put the folder on `sys.path`."""

from importlib.metadata import Distribution
from pathlib import Path

from tg_gateway.mounts import DOORS


def install_door(folder: Path, name: str, *doors: str) -> Distribution:
    """Write what an installer writes; `doors` are lines "door = module:NAME"."""
    installed = folder / f"{name.replace('-', '_')}-1.dist-info"
    installed.mkdir(exist_ok=True)
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("\n".join([f"[{DOORS}]", *doors]))
    return Distribution.at(installed)
