"""When edits of files are told: not while a file is written, and not only once nobody edits any more."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from typing_extensions import override

from tg_base.runtime import FileEdits
from tg_base.runtime.file_edits import MAX_UNSETTLED

Edit = Callable[[int], None]


class EditedFile(FileEdits):
    """Somebody edits the files before each look at them."""

    def __init__(self, edit: Edit, *files: Path) -> None:
        self.edit, self.looks = edit, 0
        super().__init__(files, poll=0.001)

    @override
    def _look(self) -> tuple[tuple[int, int, int] | None, ...]:
        self.looks += 1
        self.edit(self.looks)
        return super()._look()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "edited"


def replace(file: Path, look: int) -> None:
    """Put another file in its place at once, as editors do."""
    new = file.with_suffix(".new")
    new.write_text("x" * (look % 2 + 1))
    os.utime(new, ns=(look, look))
    new.replace(file)


async def test_edits_that_never_rest_are_told_all_the_same(file: Path) -> None:
    edits = EditedFile(partial(replace, file), file)
    async with asyncio.timeout(60):
        await edits.wait()
        assert edits.looks <= 5
        await edits.wait()
    assert edits.looks <= 10


async def test_a_file_that_is_being_written_is_told_when_it_is_whole(file: Path) -> None:
    def write_on(look: int) -> None:
        if look <= 9:
            file.write_text("x" * look)

    edits = EditedFile(write_on, file)
    async with asyncio.timeout(60):
        await edits.wait()
    assert edits.looks == 10


async def test_a_new_file_is_told_when_it_is_whole_although_another_one_never_rests(file: Path) -> None:
    new = file.with_name("added")

    def edit(look: int) -> None:
        replace(file, look)
        # The look at which edits that never rest are told, and some more.
        if MAX_UNSETTLED < look <= 9:
            new.write_text("x" * look)

    edits = EditedFile(edit, file, new)
    async with asyncio.timeout(60):
        await edits.wait()
    assert edits.looks == 10
