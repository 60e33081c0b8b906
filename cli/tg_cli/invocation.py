"""Ask -> gateway -> stdout: one request, whichever service, shown as it is answered."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from tg_cli.ask import Ask
from tg_cli.entry import Failure, Interrupted, say
from tg_cli.gateway_choice import chosen_gateway
from tg_cli.output import Output
from tg_client.tg_client import TgClient
from tg_schema.codec import encode
from tg_schema.errors import TgError
from tg_schema.prompt import PromptResponse
from tg_schema.service_spec import Req, ServiceSpec
from tg_schema.text_completion import TextCompletionResponse

_CUT = {
    "length": "the answer is cut: the model has reached its limit of tokens",
    "content_filter": "the answer is cut: the provider's content filter has stopped it",
}


Told = TypeVar("Told", TextCompletionResponse, PromptResponse)


class Invocation(Generic[Req, Told]):
    """One request.

    Args:
        ask: where to ask, and how to show the answer.
        spec: the service.
        request: its request.
        text: what of a record is shown.
    """

    def __init__(
        self, ask: Ask, spec: ServiceSpec[Req, Told], request: Req, text: Callable[[Told], str | None]
    ) -> None:
        self._ask = ask
        self._spec: ServiceSpec[Req, Told] = spec
        self._request = request
        self._text: Callable[[Told], str | None] = text

    def run(self) -> None:
        """Ask and show. Ctrl-C cancels, which closes the stream and so stops the model.

        Raises:
            Failure: with the sentence to show.
            Interrupted: by Ctrl-C.
            ReaderLeft: nobody reads the output.
        """
        try:
            asyncio.run(self._run())
        except TgError as error:
            again = f" (try again in {error.retry_after:g} s)" if error.retry_after else ""
            raise Failure(error.message + again) from None
        except KeyboardInterrupt:
            raise Interrupted from None

    async def _run(self) -> None:
        async with (
            chosen_gateway(self._ask.url) as url,
            TgClient(url, timeout=self._ask.timeout) as client,
            client.flow(self._ask.flow).records(self._spec, self._request) as records,
        ):
            last = await self._show(records)
        if last is not None:
            self._tell(last)

    async def _show(self, records: AsyncIterator[Told]) -> Told | None:
        record = None
        async with Output() as output:
            async for record in records:
                if self._ask.json:
                    await output.line(_json(record))
                else:
                    await output.text(self._text(record) or "")
        return record

    def _tell(self, last: Told) -> None:
        if last.finish_reason in _CUT:
            say(_CUT[last.finish_reason])
        if self._ask.show_usage:
            counts = ("unknown" if count is None else str(count) for count in (last.in_token, last.out_token))
            say("Input tokens: {}  Output tokens: {}  Model: {}".format(*counts, last.model or "unknown"))


def _json(record: TextCompletionResponse | PromptResponse) -> bytes:
    """The record without what is not known, as the gateway writes it."""
    fields = ((name, getattr(record, name)) for name in record.__struct_fields__)
    return encode({name: value for name, value in fields if value not in (None, ())})
