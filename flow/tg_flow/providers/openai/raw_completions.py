"""TextCompletionRequest -> a server with chats and raw prompts on different routes -> LlmChunks: the common base."""

from abc import abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Generic

from typing_extensions import override

from tg_base.llm import LlmChunk
from tg_flow.providers.openai.provider import AnyOptions, ChatCompletions
from tg_schema import TextCompletionRequest, Token
from tg_schema.errors import BadRequest

MAX_TOKENIZED_TEXTS = 64
"""Most texts of one request; each is tokenized by a call of its own."""


class RawCompletions(ChatCompletions[AnyOptions], Generic[AnyOptions]):
    """A chat server that also completes and tokenizes raw prompts, and reports their log-probabilities."""

    @override
    def needs_prompt(self, request: TextCompletionRequest) -> bool:
        return request.echo or (request.sampling is not None and request.sampling.prompt_logprobs is not None)

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        if request.echo and not is_plain(request):
            raise BadRequest("echo needs raw or prompt_ids: this server cannot repeat a conversation; leave it out")
        wanted = None if request.sampling is None else request.sampling.prompt_logprobs
        # Fetch these first: such servers send them only in answers that are not streamed.
        scored = () if wanted is None else await self.score_prompt(request, wanted)
        echo = (await self.prompt_text(request)) if request.echo else ""
        if echo or scored:
            for index in range(request.answers):
                yield LlmChunk(echo, index=index, prompt_tokens=scored)
        async with aclosing(super().generate_content_stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    @abstractmethod
    async def score_prompt(self, request: TextCompletionRequest, alternatives: int) -> tuple[Token, ...]:
        """The tokens of the prompt; each except the first has its log-probability, given the tokens before it.

        Raises:
            TgError: as `generate_content`.
        """

    @abstractmethod
    async def prompt_ids(self, request: TextCompletionRequest) -> tuple[int, ...]:
        """The ids of the prompt's tokens, as the model receives them. Raises as `score_prompt`."""

    @abstractmethod
    async def text_ids(self, text: str) -> tuple[int, ...]:
        """The ids of a text's own tokens, without the begin token. Raises as `score_prompt`."""

    async def prompt_text(self, request: TextCompletionRequest) -> str:
        """The text of a prompt that is not a conversation. Raises as `score_prompt`."""
        return request.prompt or ""

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        return len(await self.prompt_ids(request))

    @override
    async def tokenize(self, request: TextCompletionRequest) -> tuple[int, ...]:
        if not request.texts:
            return await self.prompt_ids(request)
        if len(request.texts) > MAX_TOKENIZED_TEXTS:
            raise BadRequest(f"texts: at most {MAX_TOKENIZED_TEXTS} can be tokenized at a time; ask several times")
        found = [await self.text_ids(text) for text in request.texts]
        return tuple([token for ids in found for token in ids])


def is_plain(request: TextCompletionRequest) -> bool:
    """Whether the model gets the prompt without its chat template."""
    return bool(request.raw or request.prompt_ids)
