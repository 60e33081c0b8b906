"""`tg-usage`: tokens and cost by key, model and other fields, to stdout."""

from typing import TYPE_CHECKING

import click

from tg_cli.invoke_options import find_url, gateway_options

if TYPE_CHECKING:
    from tg_schema.usage_report import UsageRequest


@click.command("tg-usage", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--by", default="model", show_default=True, help="Fields to sum by, separated by commas.")
@click.option("--since", default="7d", show_default=True, help="A time in UTC, such as 2026-11-01, or 36h, 7d, 4w ago.")
@click.option("--until", help="The same, exclusive. [default: now]")
@click.option("--key", help="Only this key. [default: every key that the token may see]")
@click.option("--csv", "form", flag_value="csv", help="Print all columns as CSV, and cost in dollars.")
@click.option("--json", "form", flag_value="json", help="Print each row as one line of JSON, and cost in nano-dollars.")
@gateway_options
def show_usage(
    *, by: str, since: str, until: str | None, key: str | None, form: str | None, url: str | None, timeout: float
) -> None:
    """Sum up what was used: calls of models, tokens, and cost.

    --by takes hour, day, month, key, customer, tags, door, flow, model, provider, upstream_model and outcome. Whole
    hours count, in UTC. The bearer token is taken from TOKENGRID_TOKEN or TRUSTGRAPH_TOKEN. An administrator's token
    shows the usage of all keys, any other its own.

    Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 141 the reader of the output has left.
    """
    # Import the parts for a call only after the arguments were checked: --help stays quick.
    from tg_cli.invocation import run_call
    from tg_schema.usage_report import UsageRequest

    fields = tuple(name.strip() for name in by.split(",") if name.strip())
    run_call(_show(find_url(url), timeout, UsageRequest(fields, since, until, key), form))


async def _show(url: str | None, timeout: float, asked: "UsageRequest", form: str | None) -> None:
    from tg_cli.endings import notify
    from tg_cli.gateway_choice import open_gateway
    from tg_cli.invocation import tell_wait
    from tg_cli.output import Output
    from tg_cli.usage_table import write_csv, write_table
    from tg_client import TgClient
    from tg_schema import encode

    async with open_gateway(url) as chosen, TgClient(chosen, timeout=timeout, on_retry=tell_wait) as client:
        answer = await client.usage(asked.by, since=asked.since, until=asked.until, key=asked.key)
    async with Output() as output:
        for row in answer.rows if form == "json" else ():
            await output.json(encode(row))
        if form != "json":
            await output.text((write_csv if form == "csv" else write_table)(asked.by, answer.rows))
    if not answer.lasting:
        notify("these sums began when the usage service started: its configuration names no database")
