"""MAP.md: what `make map` writes of the modules, whose rows by hand lead to names that exist."""

from pathlib import Path

import pytest

from scripts.map import BEGIN, PAGE, ROOT, Modules, write_page

MAX_ROWS_BY_HAND = 150
MODULES = Modules(ROOT)
PYPROJECT = '[tool.uv.workspace]\nmembers = ["base", "picker"]\n'
HEAD = "| subject | look for | in |\n|---|---|---|\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    for path, text in {
        "base/tg_base/__init__.py": '"""Lowest."""\n',
        "base/tg_base/clocks.py": '"""Time -> a | b.\n"""\nSECONDS = 1\nclass Clock:\n    def tick(self): ...\n',
        "picker/tg_picker/core/pick.py": '"""Servers -> one."""\n\n\nasync def pick(): ...\n\n\nSECONDS: int = 2\n',
        "picker/tests/test_pick.py": '"""No module of the product."""\n',
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text("utf-8")
    assert page == write_page(page, MODULES), "run `make map`"


def test_few_rows_are_written_by_hand() -> None:
    rows = PAGE.read_text("utf-8").partition(BEGIN)[0].count("\n| ")
    assert 20 < rows <= MAX_ROWS_BY_HAND


def test_every_member_and_its_modules_are_listed(repository: Path) -> None:
    row = "| time | `Clock.tick`, `pick.SECONDS`; `base/`, `clocks.py` |"
    page = write_page(f"# Map\n{HEAD}{row} old |\n\n{BEGIN}what was there\n", Modules(repository))
    files = "`base/tg_base/clocks.py`, `picker/tg_picker/core/pick.py`, `base/`"
    assert page == (
        f"# Map\n{HEAD}{row} {files} |\n\n{BEGIN}"
        "\n### `base/tg_base/`\n| file | what |\n|---|---|\n| `__init__.py` | Lowest. |\n"
        "| `clocks.py` | Time -> a \\| b. |\n"
        "\n### `picker/tg_picker/core/`\n| file | what |\n|---|---|\n| `pick.py` | Servers -> one. |\n"
    )


@pytest.mark.parametrize("name", ["Nobody", "Clock.tock", "clocks.Clack", "core/", "clock.py"])
def test_a_row_that_leads_nowhere_is_found(repository: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"0 files define `{name}`"):
        write_page(f"{HEAD}| time | `{name}` | |\n{BEGIN}", Modules(repository))


def test_a_subject_of_two_rows_is_found(repository: Path) -> None:
    # A merge of two branches, each of which changed a row, may leave both.
    page = f"{HEAD}| time | `Clock` | |\n| a tick | `Clock.tick` | |\n| time | `pick.SECONDS` | |\n{BEGIN}"
    with pytest.raises(ValueError, match=r"^2 rows are of 'time': make them one$"):
        write_page(page, Modules(repository))


def test_a_name_that_many_files_define_is_found(repository: Path) -> None:
    for number in range(2):
        (repository / f"base/tg_base/clock_{number}.py").write_text('"""Clock."""\nSECONDS = 1\n')
    with pytest.raises(ValueError, match=r"4 files define `SECONDS`.*base/tg_base/clocks.py"):
        Modules(repository).find("SECONDS")


def test_a_module_that_says_nothing_is_found(repository: Path) -> None:
    (repository / "base/tg_base/silent.py").write_text("SILENT = 1\n")
    with pytest.raises(ValueError, match=r"base/tg_base/silent.py says nothing of itself"):
        list(Modules(repository).list_all())
