"""Command -> launcher: imports the logging library before all other parts, and without what they do not use."""

import sys
from importlib import import_module
from types import ModuleType
from typing import cast


def import_structlog() -> None:
    """Import structlog without rich, which structlog imports if it is installed, for tracebacks that we do not log.

    The import of rich takes longer than all else in structlog. Other code can import rich as usual afterwards.
    """
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    # Python's mark of a module that cannot be found.
    sys.modules["rich"] = cast(ModuleType, None)
    try:
        import_module("structlog")
    finally:
        del sys.modules["rich"]
