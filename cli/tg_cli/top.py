"""`tg-top`: what gateways do now, on a terminal, or once to stdout."""

import os
import sys

import click

from tg_cli.invoke_options import find_url, gateways_options


@click.command("tg-top", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--once", is_flag=True, help="Print the tables once; without a terminal this is the default.")
@click.option("--json", "as_json", is_flag=True, help="Print the document of each gateway as one line of JSON.")
@gateways_options
def show_top(*, once: bool, as_json: bool, urls: tuple[str, ...], timeout: float) -> None:
    """Show what gateways do now: flows, models and queues, processors, pools of servers, and streams.

    A gateway shows all gateways on its bus. Keys: k stops the stream at the cursor and its model, Tab changes between
    tables, q leaves. The bearer token is taken from TOKENGRID_TOKEN or TRUSTGRAPH_TOKEN. An administrator's token shows
    all streams, any other its own.

    Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted, 141 the reader of the output has left.
    """
    # Import the parts for a call only after the arguments were checked: --help stays quick.
    from tg_cli.invocation import run_call

    run_call(_show(urls or (find_url(None),), timeout, once=once, as_json=as_json))


async def _show(urls: tuple[str | None, ...], timeout: float, *, once: bool, as_json: bool) -> None:
    from contextlib import AsyncExitStack

    from tg_cli.endings import Failure, Interrupted
    from tg_cli.live_table import write_figures, write_streams
    from tg_cli.output import Output
    from tg_client import TgClient
    from tg_schema import encode
    from tg_schema.errors import NotFound

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(TgClient(url, timeout=timeout, retries=0)) for url in urls]
        try:
            documents = {number: await client.live() for number, client in enumerate(clients, 1)}
        except NotFound as error:
            raise Failure(
                f"a gateway has no /api/v1/live, since it is older than this command: {error}", error
            ) from None
        if not (once or as_json) and sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
            try:
                from tg_cli.top_screen import TopScreen
            except ModuleNotFoundError:
                raise Failure('the screen needs textual: pip install "tokengrid-cli[top]"; or give --once') from None
            # It returns None if a signal has ended it.
            if await TopScreen(clients, documents).run_async() is not False:
                raise Interrupted
            return
        async with Output() as output:
            for document in documents.values() if as_json else ():
                await output.json(encode(document))
            head, streams = write_streams(documents)
            for line in () if as_json else (*write_figures(documents), "", *head, *streams.values()):
                await output.text(f"{line}\n")
