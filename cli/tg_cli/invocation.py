"""Options -> gateway -> renderer: one request to any service, shown as the answer comes."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic

from tg_cli.entry import Failure, Interrupted
from tg_cli.gateway_choice import open_gateway
from tg_cli.invoke_options import InvokeOptions
from tg_cli.renderer import Renderer
from tg_client import TgClient
from tg_schema import ServiceSpec, TgError
from tg_schema.service_spec import Req, Resp


def run_call(work: Coroutine[Any, Any, None]) -> None:
    """Run what asks a gateway to its end; Ctrl-C cancels it, which closes its streams.

    Raises:
        Failure: with the sentence to show.
        Interrupted: by Ctrl-C.
    """
    try:
        asyncio.run(work)
    except TgError as error:
        raise Failure(sentence_of(error)) from None
    except KeyboardInterrupt:
        raise Interrupted from None


def sentence_of(error: TgError) -> str:
    """What to tell the user of an error."""
    return error.message + (f" (try again in {error.retry_after:g} s)" if error.retry_after else "")


class Invocation(Generic[Req, Resp]):
    """One request.

    Args:
        ask: the gateway and the flow.
        spec: the service.
        request: its request.
        display: shows the answer.
    """

    def __init__(self, ask: InvokeOptions, spec: ServiceSpec[Req, Resp], request: Req, display: Renderer[Resp]) -> None:
        self._ask = ask
        self._spec: ServiceSpec[Req, Resp] = spec
        self._request = request
        self._display: Renderer[Resp] = display

    def run(self) -> None:
        """Ask and show. Ctrl-C cancels, which closes the stream and stops the model.

        Raises:
            Failure: with the sentence to show.
            Interrupted: by Ctrl-C.
            ReaderLeft: the reader of the output has closed it.
        """
        run_call(self._run())

    async def _run(self) -> None:
        async with (
            open_gateway(self._ask.url) as url,
            TgClient(url, timeout=self._ask.timeout) as client,
            client.flow(self._ask.flow).records(self._spec, self._request) as records,
        ):
            await self._display.show(records)
