"""Command -> launcher: the library that all parts log with, imported before them and without what they do not use."""

import sys
from importlib import import_module
from types import ModuleType
from typing import cast


def import_structlog() -> None:
    """Import structlog without rich, which it imports where it finds it, for tracebacks that our logs do not show.

    That takes longer than all else in it. Rich can be imported as ever afterwards.
    """
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    # How Python marks a module that is not to be found.
    sys.modules["rich"] = cast(ModuleType, None)
    try:
        import_module("structlog")
    finally:
        del sys.modules["rich"]
