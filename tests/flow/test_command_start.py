"""Ctrl-C while a command is still imported: it ends as it does later, and in the background it is ignored.

One that can open no file at all starts, too.
"""

import sys
from pathlib import Path

import pytest

from tests.flow.command import SCRIPTS, ran

INTERRUPTED_IMPORT = """
import os, signal

class Interrupting:
    def __set_name__(self, owner, name):  # what is raised in here, Python 3.11 wraps
        signal.raise_signal(signal.SIGINT)

class Made:
    attribute = Interrupting()

os._exit(7)
"""
# As in a sandbox without /dev/null.
NOTHING_CAN_BE_OPENED = """
import resource
import click
from tg_cli.entry import run

resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
run(click.Command("tg-say", callback=lambda: click.echo("said")))
"""
COMMANDS = [
    *("tg-chat", "tg-invoke-agent", "tg-invoke-llm", "tg-invoke-prompt", "tg-lmtp", "tg-models", "tg-usage"),
    *("tg-pick", "tg-replay", "tg-serve", "tg-serve-model"),
]


@pytest.mark.parametrize("command", COMMANDS)
async def test_ctrl_c_during_the_import_of_a_command_leaves_no_traceback(command: str, tmp_path: Path) -> None:
    # Stands before the library that each command imports first.
    (tmp_path / "click.py").write_text(INTERRUPTED_IMPORT, "utf-8")
    done = await ran(command, PYTHONPATH=str(tmp_path))
    assert (done.code, done.out, done.err) == (130, "", "")


async def test_a_command_that_the_shell_has_ignore_ctrl_c_goes_on(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(INTERRUPTED_IMPORT, "utf-8")
    done = await ran("bash", "-c", f"trap '' INT; exec {SCRIPTS / 'tg-models'}", PYTHONPATH=str(tmp_path))
    assert (done.code, done.err) == (7, "")


async def test_a_command_starts_where_nothing_can_be_opened() -> None:
    done = await ran(sys.executable, "-c", NOTHING_CAN_BE_OPENED)
    assert (done.code, done.out, done.err) == (0, "said\n", "")
