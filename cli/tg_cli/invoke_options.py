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
    "-t is the timeout, in seconds. Do not give a token on the command line, where others can see it: "
    "put it into TOKENGRID_TOKEN, or leave it in TRUSTGRAPH_TOKEN"
)


class _Finite(click.FloatRange):
    """A range that refuses NaN, which is neither below nor above any limit."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail("it must be a finite number", param, ctx)
        return number


class _Seconds(_Finite):
    """A number of seconds. TrustGraph's commands take a token at this option, so errors do not repeat its value."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            float(value)
        except ValueError:
            raise click.UsageError(_SECONDS_ONLY, ctx) from None
        return super().convert(value, param, ctx)


def _no_token(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(_SECONDS_ONLY, context)


_URL = click.option(
    "-u", "--url", help="The gateway. [default: TOKENGRID_URL, TRUSTGRAPH_URL, or http://localhost:8888/]"
)
_FLOW = click.option("-f", "--flow-id", default="default", show_default=True, help="The flow to ask.")
_MODELS_FLOW = click.option("-f", "--flow-id", help="The flow to ask. [default: the model's flow, or default]")
_CONNECTION = (
    click.option(
        "-t", "--timeout", type=_Seconds(0, min_open=True), default=300.0, show_default=True,
        help="Seconds to wait for each piece of the answer.",
    ),
    click.option("--token", hidden=True, expose_value=False, callback=_no_token),
    click.option("-w", "--workspace", expose_value=False, help="For TrustGraph's scripts; has no effect."),
)  # fmt: skip
_DISPLAY = (
    click.option("--attach", metavar="ID", help="Resume a kept answer in place of asking."),
    click.option("--after", type=click.IntRange(-1), default=-1, metavar="N", help="With --attach: after record N."),
    click.option("--no-streaming", is_flag=True, help="Print the answer when it is complete."),
    click.option("--json", "as_json", is_flag=True, help="Print each chunk as one line of JSON."),
    click.option("--show-usage", is_flag=True, help="Print tokens and model on stderr at the end."),
)
_KEEP = click.option(
    "--keep", help="Keep the answer on the gateway for this time (90s, 10m, 2h); it survives a lost connection."
)
_VERSION = version_option("tokengrid-cli")
_MODEL = (
    click.option("-m", "--model", help="The model to ask; tg-models lists them. [default: the flow's]"),
    click.option("--temperature", type=_Finite(0, 100), help="Sampling temperature; 0 = the likeliest token."),
    click.option("--max-tokens", type=click.IntRange(1, 2**31 - 1), help="Most tokens of an answer."),
)


@dataclass(frozen=True, slots=True)
class InvokeOptions:
    """The gateway, and how to show the answer.

    Attributes:
        url: None = none was given.
        flow: None = the gateway chooses.
        keep: how long the gateway keeps the answer.
        attach: the id of a kept answer to resume; None = ask.
        after: the number of the last record that was already received.
    """

    url: str | None
    flow: str | None
    timeout: float
    json: bool
    show_usage: bool
    keep: str | None
    attach: str | None
    after: int


def ask_options(command: F) -> F:
    """The options of `InvokeOptions`: url, flow_id, timeout, keep, attach, after, no_streaming, as_json, show_usage."""
    return _add(command, _URL, _FLOW, *_CONNECTION, _KEEP, *_DISPLAY, _VERSION)


def ask_model_options(command: F) -> F:
    """Give a command the options of `ask_options`, and model, temperature, max_tokens; flow_id may be None."""
    return _add(command, *_MODEL, _URL, _MODELS_FLOW, *_CONNECTION, _KEEP, *_DISPLAY, _VERSION)


def chat_options(command: F) -> F:
    """Model, temperature, max_tokens, url, flow_id (may be None), timeout, keep."""
    return _add(command, *_MODEL, _URL, _MODELS_FLOW, *_CONNECTION, _KEEP, _VERSION)


def gateway_options(command: F) -> F:
    """The gateway alone: url, timeout."""
    return _add(command, _URL, *_CONNECTION, _VERSION)


def gateways_options(command: F) -> F:
    """Several gateways: urls, timeout."""
    urls = click.option(
        "-u", "--url", "urls", multiple=True, help="A gateway; repeat it for several. [default: as for tg-models]"
    )
    return _add(command, urls, *_CONNECTION, _VERSION)


def choose_flow(flow: str | None, model: str | None) -> str | None:
    """The flow to ask; None = the gateway finds the flow that has the model."""
    return "default" if flow is None and not model else flow


def _add(command: F, *options: Callable[[F], F]) -> F:
    # The last decorator is applied first, so reverse them: --help then lists them in this order.
    for option in reversed(options):
        command = option(command)
    return command


def find_url(option: str | None) -> str | None:
    """The gateway from the option or the environment."""
    from tg_client.transport import find_url

    return option or find_url()


def read_pipe(nothing: str = "") -> str:
    """All of stdin as text, without its last line break, and without the byte order mark that Windows writes.

    Returns `nothing` if stdin is empty.
    """
    if sys.stdin is None:
        raise click.UsageError("standard input is closed: give the text as an argument")
    try:
        data = sys.stdin.buffer.read()
        return data.decode("utf-8-sig").removesuffix("\n").removesuffix("\r") if data else nothing
    except UnicodeDecodeError:
        raise click.UsageError("standard input is not UTF-8 text") from None
    except OSError as error:
        raise click.UsageError(f"standard input cannot be read: {error.strerror}") from None


def is_piped() -> bool:
    """Whether stdin is not a terminal."""
    return sys.stdin is not None and not sys.stdin.isatty()
