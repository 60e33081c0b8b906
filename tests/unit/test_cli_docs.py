"""docs/cli.md tells what the commands themselves tell."""

from pathlib import Path

import click
import pytest

from tg_cli.chat import chat
from tg_cli.invoke_agent import invoke_agent
from tg_cli.invoke_llm import invoke_llm
from tg_cli.invoke_prompt import invoke_prompt
from tg_cli.lmtp import talk_lmtp
from tg_cli.models import list_models
from tg_serve.command import serve
from tg_serve.serve_model import serve_model

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")


COMMANDS = [invoke_llm, chat, list_models, talk_lmtp, invoke_prompt, invoke_agent, serve, serve_model]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_help_stands_on_the_page(command: click.Command) -> None:
    context = click.Context(command, info_name=command.name, terminal_width=110, **command.context_settings)
    assert command.get_help(context) in PAGE
