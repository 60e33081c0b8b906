"""Process -> the same process with pinned hashes: the order of a set of names must not differ from run to run."""

import os
import sys


def pin_hashes() -> None:
    """Begin this program anew with `PYTHONHASHSEED=0`, unless it has that already."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [*sys.orig_argv], os.environ | {"PYTHONHASHSEED": "0"})
