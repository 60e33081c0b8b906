"""`tg-models`: the models that can be asked, to stdout."""

from typing import TYPE_CHECKING

import click

from tg_cli.invoke_options import find_url, gateway_options

if TYPE_CHECKING:
    from tg_schema.served_model import ServedModel


@click.command("tg-models", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="Print each model as one line of JSON.")
@gateway_options
def list_models(*, url: str | None, timeout: float, as_json: bool) -> None:
    """List the models that can be asked now, with their flows and features.

    The bearer token is taken from TOKENGRID_TOKEN or TRUSTGRAPH_TOKEN.

    Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 141 the reader of the output has left.
    """
    # Import the parts for a call only after the arguments were checked: --help stays quick.
    from tg_cli.invocation import run_call

    run_call(_list(find_url(url), timeout, as_json=as_json))


async def _list(url: str | None, timeout: float, *, as_json: bool) -> None:
    from tg_cli.gateway_choice import open_gateway
    from tg_cli.invocation import tell_wait
    from tg_cli.output import Output
    from tg_client import TgClient
    from tg_schema import encode
    from tg_schema.errors import Unavailable

    async with open_gateway(url) as chosen, TgClient(chosen, timeout=timeout, on_retry=tell_wait) as client:
        models = await client.models()
    if not models:
        raise Unavailable("no model can be asked now: start a processor, for instance with tg-serve")
    async with Output() as output:
        for model in models if as_json else ():
            await output.json(encode(model))
        for row in () if as_json else _table(models):
            await output.text(f"{row}\n")


def _table(models: "tuple[ServedModel, ...]") -> list[str]:
    rows = [("MODEL", "FLOW", "FEATURES"), *((row.model, row.flow, _describe(row)) for row in models)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}".rstrip() for row in rows]


def _describe(row: "ServedModel") -> str:
    if row.alias_of:
        return f"= {row.alias_of}"
    models = (each.model if each.state == "ready" else f"{each.model} ({each.state})" for each in row.route)
    return f"-> {', '.join(models)}" if row.route else ", ".join(row.features)
