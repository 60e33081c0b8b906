"""Arguments and standard input of the commands: what is taken, and what is refused in one sentence."""

import io
import sys

import click
import pytest
from click.testing import CliRunner
from typing_extensions import override

from tg_cli.invoke_options import read_pipe
from tg_cli.invoke_prompt import _values, invoke_prompt


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
