"""`tg-replay`: shows a kept stream again at its original pace, or lists the ids of all kept streams."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tg_cli.invoke_options import find_url, gateway_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SPEEDS = ("1", "10", "max")


@click.command("tg-replay", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("stream", metavar="[ID]", required=False)
@click.option("--speed", type=click.Choice(SPEEDS), default="1", show_default=True, help="Times the original speed.")
@click.option(
    "--json", "as_json", is_flag=True, help='Print the records, one a line: a file for the provider "replay".'
)
@click.option("--follow", is_flag=True, help="Print the id of each kept stream, and of each new one as it begins.")
@click.option("--key", metavar="NAME", help="The key that asked; only administrators may name another's key.")
@gateway_options
def replay_stream(
    *,
    stream: str | None,
    speed: str,
    as_json: bool,
    follow: bool,
    key: str | None,
    url: str | None,
    timeout: float,
) -> None:
    """Show a kept stream again, after it has ended. With --speed max show it at once, and its new records as they come.

    With --follow in place of an ID, print a line for each stream: its id, when it began, its model and its door. To
    show a stream, give its id.

    The bearer token is taken from TOKENGRID_TOKEN or TRUSTGRAPH_TOKEN; it must be of the key that asked for the stream.

    Exit codes: 0 done, 1 error, also if the stream has failed, 2 wrong usage, 130 interrupted, 141 the reader of the
    output has left.
    """
    # Import the parts for a call only after the arguments were checked: --help stays quick.
    from tg_cli.invocation import run_call

    if follow is (stream is not None):
        raise click.UsageError("give the ID of a stream, or --follow")
    if stream is None:
        run_call(_follow(find_url(url), timeout, key, as_json=as_json))
    else:
        run_call(_replay(find_url(url), timeout, stream, speed, key, as_json=as_json))


async def _follow(url: str | None, timeout: float, key: str | None, *, as_json: bool) -> None:
    from tg_cli.output import Output
    from tg_client import TgClient
    from tg_schema import encode

    async with TgClient(url, timeout=timeout) as client, Output() as output, client.follow_streams(key=key) as streams:
        async for each in streams:
            if as_json:
                await output.json(encode(each))
            else:
                begun = datetime.fromtimestamp(each.begun, UTC).isoformat(timespec="seconds")
                await output.text(f"{each.id}  {begun}  {each.model or each.service}  {each.door or '-'}\n")


async def _replay(url: str | None, timeout: float, stream: str, speed: str, key: str | None, *, as_json: bool) -> None:
    from tg_cli.output import Output
    from tg_client import TgClient
    from tg_schema import TgError, decode
    from tg_schema.recorded import Pace, Recorded

    pace = Pace(speed)
    async with (
        TgClient(url, timeout=timeout) as client,
        Output() as output,
        client.follow_records(stream, key=key) as records,
    ):
        # A gateway disconnects a slow reader, and a pause may be long. So read everything before pacing it.
        lines = records if speed == "max" else _again([line async for line in records])
        async for line in lines:
            record = decode(Recorded, line)
            await asyncio.sleep(pace.pause(record.at))
            if as_json:
                await output.json(line)
            elif record.shown:
                await output.text(record.shown)
            if record.error is not None:
                raise TgError.of(record.error)


async def _again(lines: list[bytes]) -> "AsyncIterator[bytes]":
    for line in lines:
        yield line
