"""llama.cpp -> Python: its log, and a faster way to call its short functions.

Importing this module loads the native library.
"""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Any

import structlog

from tg_schema.errors import Unavailable

SPIN_TURNS = "1000"
"""How often a step's thread polls for the other threads before it sleeps: for about ten microseconds."""

_LEAN_BUILD = Path(__file__).with_suffix(".cmake")
"""A file for CMake, which makes llama.cpp compile only what is loaded here. The Makefile names it, too."""

_BUILD = f"CMAKE_ARGS={quote(f'-DCMAKE_PROJECT_llama.cpp_INCLUDE={_LEAN_BUILD}')}"
_ABSENT = (
    'provider "llama-cpp" needs a package that is not installed, and that pip compiles: with a C++ compiler, in about '
    f'two minutes; run: {_BUILD} pip install "tokengrid-llama[cpp]"'
)

# OpenMP's default is a thousand times as much. While another process uses one of the cores, the step's other threads
# would spin at each of its hundreds of barriers. OpenMP reads this variable while it is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", SPIN_TURNS)

try:
    import llama_cpp
except ModuleNotFoundError:
    raise Unavailable(_ABSENT) from None
except (OSError, RuntimeError) as error:
    raise Unavailable("llama.cpp cannot be loaded: install libgomp1 and libstdc++6, which it needs") from error

ERROR_LEVEL = 4
"""GGML_LOG_LEVEL_ERROR in ggml.h."""

log = structlog.get_logger()

native: Any = llama_cpp
"""The binding; its type hints are not usable."""


def _on_log(level: int, text: bytes, _data: object) -> None:
    if level == ERROR_LEVEL:
        log.error("llama.error", text=text.decode("utf-8", "replace").strip())


_callback = native.llama_log_callback(_on_log)
native.llama_log_set(_callback, None)
native.llama_backend_init()


def hold_interpreter_lock(function: Any) -> Callable[..., Any]:
    """The same native function, but called without releasing the interpreter lock.

    A call of a few microseconds must not hand the lock to the event loop's thread: getting it back may take five
    milliseconds (`sys.getswitchinterval`), once for every token.
    """
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    return ctypes.PYFUNCTYPE(function.restype, *function.argtypes)(address)
