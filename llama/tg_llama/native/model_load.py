"""GGUF file -> llama.cpp's model. A load may run in any thread, can be aborted, and ends before the process does."""

import atexit
import threading
from pathlib import Path
from typing import Any

from tg_llama.native.library import native
from tg_schema.errors import Unavailable

ABORT_SECONDS = 5.0
"""Seconds that an exiting process waits for its loads. llama.cpp checks after each tensor whether to go on."""


class ModelLoad:
    """One load of a model; any thread may call `abort`."""

    def __init__(self) -> None:
        self._aborted = threading.Event()
        self._ended = threading.Event()

    def run(self, path: Path, *, weights: bool) -> Any:
        """Load the model and return llama.cpp's pointer to it. Blocks.

        Args:
            path: the file.
            weights: False reads only the metadata, which is quick, and checks that the file is complete.

        Raises:
            Unavailable: the load was aborted, or llama.cpp cannot load the file.
        """
        settings = self._settings(weights=weights)
        # The native library must not be unloaded while a daemon thread runs inside it.
        atexit.register(self._abort_and_wait)
        try:
            pointer = native.llama_model_load_from_file(str(path).encode(), settings)
        finally:
            self._ended.set()
            atexit.unregister(self._abort_and_wait)
        if not pointer:
            if self._aborted.is_set():
                raise Unavailable("the loading of the model was aborted")
            raise Unavailable(f"llama.cpp cannot load {path.name}: it must be a complete GGUF file of a text model")
        return pointer

    def abort(self) -> None:
        """End the load soon. Does nothing if it has ended."""
        self._aborted.set()

    def _abort_and_wait(self) -> None:
        self.abort()
        self._ended.wait(ABORT_SECONDS)

    def _settings(self, *, weights: bool) -> Any:
        settings = native.llama_model_default_params()
        if not weights:
            settings.no_alloc = True
            settings.load_mode = native.LLAMA_LOAD_MODE_NONE  # no_alloc cannot be combined with the other modes
        settings.progress_callback = native.llama_progress_callback(lambda _progress, _data: not self._aborted.is_set())
        return settings
