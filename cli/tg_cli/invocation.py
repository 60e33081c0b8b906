"""Options -> gateway -> renderer: one request to any service, shown as the answer comes."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import click

from tg_cli.endings import Failure, Interrupted, notify
from tg_cli.gateway_choice import open_gateway
from tg_cli.invoke_options import InvokeOptions
from tg_cli.renderer import Record, Write, show
from tg_client import TgClient
from tg_client.transport import WAIT_LONGER
from tg_schema import ServiceSpec, TgError
from tg_schema.service_spec import Req


def run_call(work: Coroutine[Any, Any, None]) -> None:
    """Run the work of a command to its end. Ctrl-C cancels it, which closes its streams.

    Raises:
        Failure: with the sentence to show.
        Interrupted: by Ctrl-C.
    """
    try:
        asyncio.run(_cancel_when_interrupted(work))
    except TgError as error:
        raise Failure(_sentence_of(error), error) from None
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise Interrupted from None


async def _cancel_when_interrupted(work: Coroutine[Any, Any, None]) -> None:
    """Run it in a task. The first Ctrl-C cancels the task between two steps of the loop, the second one at once.

    asyncio's own handler cancels in the middle of a step: a callback that sets a future's result would then find the
    future cancelled, and end the command with a traceback.
    """
    task = asyncio.ensure_future(work)

    def on_signal() -> None:
        if task.cancelling():
            raise KeyboardInterrupt
        task.cancel()

    # A shell makes a command in the background ignore SIGINT; leave it so.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, on_signal)
    await task


async def _run_interruptible(work: Coroutine[Any, Any, None]) -> None:
    """Run something that Ctrl-C stops. After Ctrl-C this returns normally. Raises what the work raises."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work, name="interruptible")
    # Replaces asyncio's own handler, which would cancel the whole program.
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await asyncio.wait([task])
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        task.cancel()
    if not task.cancelled():
        task.result()


async def handle_line(work: Coroutine[Any, Any, None], *, interactive: bool) -> None:
    """Do what a line asks for. Interactively, Ctrl-C stops it and a failure is shown; in a pipe a failure is raised."""
    if not interactive:
        await work
        return
    try:
        await _run_interruptible(work)
    except (TgError, Failure) as error:
        notify(_sentence_of(error) if isinstance(error, TgError) else error.message)


def _sentence_of(error: TgError) -> str:
    """The error's sentence for the user, which names the command's option in place of the SDK's argument."""
    error.message = error.message.replace(WAIT_LONGER, "a longer timeout (-t) waits longer")
    return error.message + (f" (try again in {error.retry_after:g} s)" if error.retry_after else "")


def tell_wait(error: TgError, seconds: float, tell: Callable[[str], None] = notify) -> None:
    """Tell a user at a terminal why and how long a command waits."""
    if sys.stderr is not None and sys.stderr.isatty():
        tell(f"asking again in {seconds:.1f} s: {error.message}")


def invoke(ask: InvokeOptions, spec: ServiceSpec[Req, Record], request: Req, write: Write[Record]) -> None:
    """Ask a service, or resume its answer, and show it. Ctrl-C cancels: it closes the stream and stops the model.

    Args:
        ask: the gateway and the flow.
        spec: the service.
        request: its request.
        write: writes the answer, unless the user asked for JSON.

    Raises:
        Failure: with the sentence to show.
        Interrupted: by Ctrl-C.
        ReaderLeft: the reader of the output has closed it.
    """

    async def call() -> None:
        async with open_gateway(ask.url) as url, TgClient(url, timeout=ask.timeout, on_retry=tell_wait) as client:
            if ask.attach is None:
                stream = client.flow(ask.flow).records(spec, request, keep=ask.keep)
            else:
                stream = client.attach(spec, ask.attach, ask.after)
            try:
                async with stream as records:
                    await show(records, write, as_json=ask.json, show_usage=ask.show_usage)
            except TgError as error:
                if (position := stream.position).goes_on and error.retryable:
                    options = f"--attach {position.stream} --after {position.after}"
                    notify(f"the answer goes on: {click.get_current_context().info_name} {options}")
                raise

    run_call(call())
