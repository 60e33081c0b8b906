"""Packages whose `__init__` waits until somebody asks them for a name."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from threading import Barrier
from types import ModuleType
from typing import Any

import pytest

from tg_base.llm.late_packages import late_packages

FILES = {
    "sdk/__init__.py": "from sdk.kinds.plain import Plain\nfrom sdk import kinds",
    "sdk/kinds/__init__.py": "import sdk.told\nfrom sdk.kinds.big import Big\nfrom sdk.kinds.plain import Plain",
    "sdk/kinds/big.py": "from sdk import kinds\nBig = kinds.__name__ + '.Big'",
    "sdk/kinds/plain.py": "Plain = 'plain'",
    "sdk/kinds/more/__init__.py": "from sdk.kinds.more.other import Other",
    "sdk/kinds/more/other.py": "Other = 'other'",
    "sdk/told.py": "times = 0",
}


@pytest.fixture(autouse=True)
def _sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An SDK whose client needs a module of `sdk.kinds`, and whose `sdk.kinds` imports what nobody needs."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    yield
    assert sys.meta_path == before
    for name in loaded():
        del sys.modules[name]


def loaded() -> set[str]:
    return {name for name in sys.modules if name.partition(".")[0] == "sdk"}


def imported() -> ModuleType:
    with late_packages("sdk.kinds"):
        return import_module("sdk")


def test_a_module_comes_without_its_package() -> None:
    sdk = imported()
    assert sdk.Plain == "plain"
    assert loaded() == {"sdk", "sdk.kinds", "sdk.kinds.plain"}


def test_a_name_brings_the_package() -> None:
    kinds = imported().kinds
    # `big` asks its package while that still runs.
    assert kinds.Big == "sdk.kinds.Big"
    assert loaded() >= {"sdk.told", "sdk.kinds.big"}
    with pytest.raises(AttributeError, match=r"sdk\.kinds.*no_such_name"):
        _ = kinds.no_such_name


def test_all_its_names_bring_it_too() -> None:
    imported()
    names: dict[str, Any] = {}
    exec("from sdk.kinds import *", names)
    assert names["Big"] == "sdk.kinds.Big"


def test_packages_below_it_wait_as_well() -> None:
    with late_packages("sdk.kinds"):
        more = import_module("sdk.kinds.more")
    assert not loaded() & {"sdk.told", "sdk.kinds.more.other"}
    assert more.Other == "other"
    assert "sdk.told" not in loaded()


def test_after_the_block_imports_are_as_ever() -> None:
    imported()
    import_module("sdk.kinds.more")
    assert "sdk.kinds.more.other" in loaded()


def test_what_is_no_package_has_no_effect() -> None:
    with late_packages("sdk.told", "sdk.nothing", "sdk.kin"):
        import_module("sdk")
    assert loaded() >= {"sdk.told", "sdk.kinds.big"}


def test_what_fails_is_tried_again(tmp_path: Path) -> None:
    kinds = imported().kinds
    (tmp_path / "sdk/told.py").write_text("raise OSError('not now')")
    with pytest.raises(OSError, match="not now"):
        _ = kinds.Big
    (tmp_path / "sdk/told.py").write_text("")
    sys.path_importer_cache.clear()
    assert kinds.Big == "sdk.kinds.Big"


def test_threads_wait_for_the_one_that_runs_it(tmp_path: Path) -> None:
    kinds = imported().kinds
    both = Barrier(2, timeout=30)
    sys.modules["sdk.told"] = told = ModuleType("sdk.told")
    told.__dict__["both"] = both
    # The package waits in the middle of its `__init__` until the second thread is about to ask.
    (tmp_path / "sdk/kinds/big.py").write_text("from sdk.told import both\nboth.wait()\nBig = 'big'")

    def ask_second() -> object:
        both.wait()
        return kinds.Plain, kinds.Big

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(lambda: kinds.Big), threads.submit(ask_second)
        assert (first.result(30), second.result(30)) == ("big", ("plain", "big"))
