"""Nothing below an SDK's late package asks the package for names: two threads could then wait for each other.

One would hold the lock of the package and want that of the module, the other the other way round.
"""

import ast
from collections.abc import Iterator
from importlib.util import find_spec, resolve_name
from pathlib import Path

import pytest

from tg_flow.providers.openai import ChatCompletions

LATE = ChatCompletions.wire.late


def names_of_packages(package: str, file: Path, root: Path) -> Iterator[tuple[str, str]]:
    """What a file below a package imports from its own package or one above it that is no module: package and name."""
    place = (package, *file.relative_to(root).parts[:-1])
    own = ".".join(place)
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            asked = resolve_name("." * node.level + (node.module or ""), own) if node.level else node.module or ""
            folder = root.joinpath(*asked.split(".")[len(package.split(".")) :])
            if f"{own}.".startswith(f"{asked}.") and f"{asked}.".startswith(f"{package}."):
                for alias in node.names:
                    if not (folder / f"{alias.name}.py").exists() and not (folder / alias.name).is_dir():
                        yield asked, alias.name


def root_of(package: str) -> Path:
    found = find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@pytest.mark.parametrize("package", LATE)
def test_no_module_asks_its_late_package(package: str) -> None:
    files = sorted(root_of(package).rglob("*.py"))
    assert len(files) > 100
    asked = {str(file): [*names_of_packages(package, file, root_of(package))] for file in files}
    assert {name: names for name, names in asked.items() if names} == {}


@pytest.mark.parametrize("line", ["from sdk.kinds import Big", "from . import Big", "from .. import Big"])
def test_one_that_asks_is_found(tmp_path: Path, line: str) -> None:
    file = tmp_path / "more" / "plain.py"
    file.parent.mkdir()
    file.write_text(line)
    package = "sdk.kinds"
    assert [name for _, name in names_of_packages(package, file, tmp_path)] == ["Big"]
    file.write_text("from . import other\nfrom .other import Other\nfrom sdk.told import Told")
    (file.parent / "other.py").touch()
    assert [*names_of_packages(package, file, tmp_path)] == []
