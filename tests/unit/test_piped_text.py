"""Arguments and standard input of the commands: what is taken, and what is refused in one sentence."""

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner
from typing_extensions import override

from tg_cli.attachments import read_history, read_schema
from tg_cli.invoke_options import read_pipe
from tg_cli.invoke_prompt import _values, invoke_prompt
from tg_cli.pipe_reader import PipeReader


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.mark.parametrize("data", [b"hi", b"hi\n", b"hi\r\n", b"\xef\xbb\xbfhi\r\n"])
def test_a_text_of_any_system(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    pipe(monkeypatch, data)
    assert read_pipe() == "hi"


def test_a_standard_input_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        @override
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Broken()))
    with pytest.raises(click.UsageError, match="Bad file descriptor"):
        read_pipe()


async def test_lines_of_a_standard_input_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: descriptor))
    with pytest.raises(click.UsageError, match="standard input cannot be read: Is a directory"):
        await PipeReader().read()
    os.close(descriptor)


def test_files_with_the_mark_of_windows(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(b'\xef\xbb\xbf{"type": "object"}')
    assert read_schema(file) == {"type": "object"}
    file.write_bytes(b'\xef\xbb\xbf[{"role": "user", "content": "hi"}]')
    assert [turn.role for turn in read_history(file)] == ["user"]


def test_only_a_text_names_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b"piped")
    assert _values(('a:="-"', "b=-")) == {"a": "-", "b": "piped"}


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "[Infinity]"])
def test_what_is_no_json(value: str) -> None:
    with pytest.raises(click.UsageError, match="the value of a is not JSON"):
        _values((f"a:={value}",))


def test_an_argument_that_is_not_unicode() -> None:
    done = CliRunner().invoke(invoke_prompt, ["question", "question=\udcff"])
    assert done.exit_code == 2
    assert "the variable question has a value that JSON cannot represent" in done.output
