"""A prompt service without templates: says what it was asked, in each of the ways a prompt can be answered."""

from collections.abc import AsyncGenerator

from typing_extensions import override

from tg_base.server import Service
from tg_schema import PROMPT, PromptRequest, PromptResponse, encode
from tg_schema.errors import NotFound


class EchoPrompt(Service[PromptRequest, PromptResponse]):
    """Template "text" answers with its terms, term by term; "object" with them as JSON; there is no other."""

    spec = PROMPT

    @override
    async def on_request(self, request: PromptRequest) -> AsyncGenerator[PromptResponse, None]:
        terms = request.terms or {}
        texts = [f"{name}={value} " for name, value in terms.items()]
        if request.id == "object":
            yield PromptResponse(object=encode(terms).decode(), end_of_stream=True, model="echo")
        elif request.id != "text":
            raise NotFound("no template has this id; there are: object, text")
        elif request.streaming:
            for text in texts:
                yield PromptResponse(text=text, model="echo")
            yield PromptResponse(text="", in_token=2, out_token=len(texts), model="echo", end_of_stream=True)
        else:
            yield PromptResponse(
                text="".join(texts), in_token=2, out_token=len(texts), model="echo", end_of_stream=True
            )
