"""SdkProvider -> import of an SDK: its packages of types stay empty until code asks one of them for a name.

These packages are most of an SDK's modules (two thirds of OpenAI's), and a client that only prepares requests uses
none of them.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any

from typing_extensions import override


@contextmanager
def late_packages(*names: str) -> Iterator[None]:
    """Within the block, these packages, and the packages below them, are imported without running their `__init__`.

    A package's `__init__` runs when the package is first asked for a name that it does not have, from any thread; its
    exceptions are raised there. The modules in these packages are imported as usual. A name that names no package has
    no effect.

    None of these modules may ask its package for a name while it is imported: two threads, of which one imports the
    module and one the package, could wait for each other. `tests/unit/test_late_sdks.py` looks for such modules.
    """
    finder = _LateFinder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _LatePackage(ModuleType):
    """A package whose `__init__` has not run, or not to its end."""

    @override
    def __getattr__(self, name: str) -> Any:
        loader = self.__spec__.loader if self.__spec__ else None
        if isinstance(loader, _LateLoader):
            loader.run(self)
        return super().__getattribute__(name)


class _LateLoader(Loader):
    """Runs a package's `__init__` once, on request."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        # Modules imported by `__init__` may ask its package for names again, in the same thread.
        self._lock = RLock()
        self._begun = False

    @override
    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    @override
    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = _LatePackage

    def run(self, module: ModuleType) -> None:
        """Run `__init__`, unless it has run or is running in this thread; another thread waits for its end."""
        with self._lock:
            if self._begun:
                return
            self._begun = True
            ran = False
            try:
                self._loader.exec_module(module)
                ran = True
            finally:
                # As after a failed import, the next access tries again.
                self._begun = ran


class _LateFinder(MetaPathFinder):
    def __init__(self, names: Sequence[str]) -> None:
        self._prefixes = tuple(f"{name}." for name in names)

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not f"{fullname}.".startswith(self._prefixes):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None and spec.submodule_search_locations is not None:
            spec.loader = _LateLoader(spec.loader)
        return spec
