"""Command line -> options: those that the invoking commands share."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeVar

import click
from typing_extensions import override

from tg_cli.entry import version_option

F = TypeVar("F", bound=Callable[..., Any])

_SECONDS_ONLY = (
    "-t is the timeout, in seconds; a token is no option here, as command lines are seen by others: "
    "put it into TOKENGRID_TOKEN, or leave it in TRUSTGRAPH_TOKEN"
)


class _Seconds(click.FloatRange):
    """A number of seconds. TrustGraph's commands take a token at this option, so errors do not repeat its value."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            seconds = float(value)
        except ValueError:
            raise click.UsageError(_SECONDS_ONLY, ctx) from None
        if not isfinite(seconds):
            self.fail("it must be a finite number of seconds", param, ctx)
        return super().convert(seconds, param, ctx)


def _no_token(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(_SECONDS_ONLY, context)


_OPTIONS = (
    click.option("-u", "--url", help="The gateway. [default: TOKENGRID_URL, TRUSTGRAPH_URL, or http://localhost:8888/]"),
    click.option("-f", "--flow-id", default="default", show_default=True, help="The flow to ask."),
    click.option(
        "-t", "--timeout", type=_Seconds(0, min_open=True), default=300.0, show_default=True,
        help="Seconds to wait for each piece of the answer.",
    ),
    click.option("--token", hidden=True, expose_value=False, callback=_no_token),
    click.option("-w", "--workspace", expose_value=False, help="Taken from TrustGraph's commands; has no effect."),
    click.option("--no-streaming", is_flag=True, help="Print the answer when it is complete."),
    click.option("--json", "as_json", is_flag=True, help="Print each chunk as one line of JSON."),
    click.option("--show-usage", is_flag=True, help="Print tokens and model on stderr at the end."),
    version_option("tokengrid-cli"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class InvokeOptions:
    """The gateway, and how to show the answer. `url` None = none was given."""

    url: str | None
    flow: str
    timeout: float
    json: bool
    show_usage: bool


def ask_options(command: F) -> F:
    """Give a command the options of `InvokeOptions`: url, flow_id, timeout, no_streaming, as_json, show_usage."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def find_url(option: str | None) -> str | None:
    """The gateway from the option or the environment."""
    from tg_client.transport import find_url

    return option or find_url()


def read_pipe() -> str:
    """All of stdin as text, without its last line break."""
    if sys.stdin is None:
        raise click.UsageError("standard input is closed: give the text as an argument")
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError:
        raise click.UsageError("standard input is not UTF-8 text") from None


def is_piped() -> bool:
    """Whether stdin is not a terminal."""
    return sys.stdin is not None and not sys.stdin.isatty()
