"""`tg-invoke-prompt`: fills a template of the configuration, has a model answer it, and writes the answer to stdout."""

import json
from functools import partial
from math import isfinite
from typing import Any

import click

from tg_cli.invoke_options import InvokeOptions, ask_options, find_url, read_pipe

MAX_INTEGER_DIGITS = 4300
"""Most digits of a whole number: Python's default limit."""


@click.command("tg-invoke-prompt", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("template_id", required=False)
@click.argument("variables", nargs=-1, metavar="[VAR=VALUE]...")
@ask_options
def invoke_prompt(
    *,
    template_id: str | None,
    variables: tuple[str, ...],
    url: str | None,
    flow_id: str,
    timeout: float,
    keep: str | None,
    attach: str | None,
    after: int,
    no_streaming: bool,
    as_json: bool,
    show_usage: bool,
) -> None:
    """Fill the template TEMPLATE_ID with variables and have a model answer it.

    VAR=VALUE is text, VAR:=VALUE is JSON, and VAR=- is read from standard input. The bearer token is taken from
    TOKENGRID_TOKEN or TRUSTGRAPH_TOKEN. Ctrl-C stops the model.

    Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 141 the reader of the output has left.
    """
    if template_id is None and attach is None:
        raise click.UsageError("TEMPLATE_ID is missing: name a template of the configuration")
    values = _values(variables)
    # Import the parts for a call only after the arguments were checked: --help stays quick.
    from tg_cli.invocation import invoke
    from tg_cli.renderer import write_text
    from tg_client.flow import prompt_request
    from tg_schema import PROMPT
    from tg_schema.errors import BadRequest

    try:
        request = prompt_request(template_id or "", values, streaming=not no_streaming)
    except BadRequest as error:
        raise click.UsageError(error.message) from None
    ask = InvokeOptions(find_url(url), flow_id, timeout, as_json, show_usage, keep, attach, after)
    invoke(
        ask,
        PROMPT,
        request,
        partial(write_text, lambda record: record.text if record.object is None else record.object),
    )


def _values(variables: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    piped: list[str] = []
    for variable in variables:
        name, equals, value = variable.partition("=")
        as_json = name.endswith(":")
        name = name.removesuffix(":")
        if not name or not equals:
            raise click.UsageError(f"{variable!r} is no variable: write NAME=TEXT or NAME:=JSON")
        if name in values:
            raise click.UsageError(f"the variable {name} is given twice")
        values[name] = _parse_value(name, value) if as_json else value
        # JSON's text "-" is an ordinary value.
        piped += [name] if value == "-" and not as_json else []
    if len(piped) > 1:
        raise click.UsageError("only one variable can be read from standard input")
    return values | {name: read_pipe() for name in piped}


def _parse_value(name: str, text: str) -> Any:
    try:
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
            parse_int=_parse_int,
            object_pairs_hook=_unique,
        )
    except click.UsageError as error:
        raise click.UsageError(f"the value of {name} {error.message}") from None
    except (ValueError, RecursionError):
        raise click.UsageError(f"the value of {name} is not JSON; for text write {name}=TEXT") from None


def _refuse_constant(name: str) -> Any:
    """Refuse NaN and Infinity, which Python's JSON accepts and which would arrive as null."""
    raise ValueError(name)


def _parse_float(digits: str) -> float:
    """Refuse a number that is too large: Python would turn it into infinity, which would arrive as null."""
    if not isfinite(number := float(digits)):
        raise click.UsageError(f"has the number {digits[:20]}, which is too large")
    return number


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_INTEGER_DIGITS:
        raise click.UsageError(f"has a number of {len(digits)} digits; at most {MAX_INTEGER_DIGITS} are possible")
    return int(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Refuses a repeated name, whose first value Python would drop."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise click.UsageError("has an object with the same name twice")
    return fields
