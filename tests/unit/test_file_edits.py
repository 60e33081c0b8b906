"""When edits of files are told: not while a file is written, and not only once nobody edits any more."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from tg_base.runtime import FileEdits

Edit = Callable[[int], None]


class EditedFile(FileEdits):
    """Somebody edits the file before each look at it."""

    def __init__(self, file: Path, edit: Edit) -> None:
        self.edit, self.looks = edit, 0
        super().__init__((file,), poll=0.001)

    @override
    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        self.looks += 1
        self.edit(self.looks)
        return super()._look()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "edited"


async def test_edits_that_never_rest_are_told_all_the_same(file: Path) -> None:
    def replace(look: int) -> None:
        new = file.with_suffix(".new")
        new.write_text("x" * (look % 2 + 1))
        os.utime(new, ns=(look, look))
        new.replace(file)

    edits = EditedFile(file, replace)
    async with asyncio.timeout(60):
        await edits.wait()
        assert edits.looks <= 5
        await edits.wait()
    assert edits.looks <= 10


async def test_a_file_that_is_being_written_is_told_when_it_is_whole(file: Path) -> None:
    def write_on(look: int) -> None:
        if look <= 9:
            file.write_text("x" * look)

    edits = EditedFile(file, write_on)
    async with asyncio.timeout(60):
        await edits.wait()
    assert edits.looks == 10
