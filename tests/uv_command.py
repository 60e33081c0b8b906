"""Where `uv` is: the tests install with what the Makefile installs with."""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def uv_command() -> list[str]:
    """The beginning of a command line: uv on the path, beside this Python, or where the Makefile puts it."""
    places = (shutil.which("uv"), Path(sys.executable).parent / "uv", ROOT / ".cache" / "uv" / "bin" / "uv")
    found = next((str(place) for place in places if place is not None and Path(place).is_file()), None)
    return [sys.executable, "-m", "uv"] if found is None else [found]
