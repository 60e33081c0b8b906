"""cli/OPTIONS.md tells what the commands themselves tell; and what they tell of options that there are not."""

import re
from pathlib import Path

import click
import pytest

from tg_cli.chat import chat
from tg_cli.entry import describe_usage
from tg_cli.invoke_agent import invoke_agent
from tg_cli.invoke_llm import invoke_llm
from tg_cli.invoke_prompt import invoke_prompt
from tg_cli.lmtp import talk_lmtp
from tg_cli.models import list_models
from tg_cli.replay import replay_stream
from tg_cli.top import show_top
from tg_cli.usage import show_usage
from tg_serve.command import serve
from tg_serve.pick import pick
from tg_serve.serve_model import serve_model

PAGE = (Path(__file__).parents[2] / "cli" / "OPTIONS.md").read_text("utf-8")


COMMANDS = [
    invoke_llm,
    chat,
    list_models,
    show_usage,
    show_top,
    replay_stream,
    talk_lmtp,
    invoke_prompt,
    invoke_agent,
    serve,
    serve_model,
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_help_stands_on_the_page(command: click.Command) -> None:
    context = click.Context(command, info_name=command.name, terminal_width=110, **command.context_settings)
    assert command.get_help(context) in PAGE


@pytest.mark.parametrize("command", [*COMMANDS, pick], ids=lambda command: command.name)
def test_only_options_of_the_help_are_suggested(command: click.Command) -> None:
    """Of all that is similar to one of the command's options, or to none."""
    options = [option for option in command.params if isinstance(option, click.Option)]
    listed = {name for option in options if not option.hidden for name in option.opts}
    typed = {f"{name}x" for option in options for name in option.opts if name.startswith("--")}
    suggested: set[str] = set()
    for name in sorted(typed | {"--nope"}):
        with pytest.raises(click.NoSuchOption) as unknown:
            command.make_context(command.name, [name])
        said = describe_usage(unknown.value)
        assert f"No such option '{name}'." in said
        suggested |= set(re.findall(r"'(--[\w-]+)'", said)) - {name}
    assert suggested
    assert suggested <= listed | {"--help", "--version"}
