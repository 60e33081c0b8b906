"""TextCompletionRequest with another operation than "completion" -> the one record that answers it."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol, TypeVar

import msgspec

from tg_base.llm.guard import TOO_DEEP, Clocks
from tg_schema import ModelInfo, TextCompletionRequest, TextCompletionResponse
from tg_schema.deltas import MAX_COUNT
from tg_schema.errors import BadRequest, ProtocolError, Timeout

Result = TypeVar("Result")


class Embeddings(msgspec.Struct, frozen=True):
    """The vectors of some texts, one for each.

    Attributes:
        vectors: in the order of the texts.
        in_token: tokens of all texts; None = unknown.
    """

    vectors: tuple[tuple[float, ...], ...]
    in_token: int | None = None


class Operator(Protocol):
    """A provider, as far as operations ask it."""

    model: str
    upstream_model: str
    clocks: Clocks

    async def models(self) -> tuple[ModelInfo, ...]:
        """See `LlmService`, like the others."""

    async def count_tokens(self, request: TextCompletionRequest) -> int:
        """The prompt's tokens."""

    async def tokenize(self, request: TextCompletionRequest) -> tuple[int, ...]:
        """The prompt as token ids."""

    async def embed(self, request: TextCompletionRequest) -> Embeddings:
        """The vectors of `texts`."""


async def operate(provider: Operator, request: TextCompletionRequest) -> TextCompletionResponse:
    """The answer to a request that is checked already.

    Raises:
        TgError: the provider's, or a Timeout: all operations must end within `clocks.first_token`.
    """
    answer = TextCompletionResponse(response="", model=provider.model, end_of_stream=True)
    match request.operation:
        case "list-models":
            listed = _own_model(provider, await _within(provider, "list its models", provider.models()))
            return TextCompletionResponse(response="", models=(listed,), end_of_stream=True)
        case "count-tokens":
            count = await _within(provider, "count the tokens", provider.count_tokens(request))
            if not 0 <= count <= MAX_COUNT:
                raise ProtocolError("the provider counts tokens out of range")
            return msgspec.structs.replace(answer, in_token=count)
        case "tokenize":
            ids = await _within(provider, "tokenize the prompt", provider.tokenize(request))
            return msgspec.structs.replace(answer, ids=ids)
        case "embed":
            found = await _within(provider, "embed the texts", provider.embed(request))
            if len(found.vectors) != len(request.texts):
                raise ProtocolError("the provider did not send one vector for each text")
            return msgspec.structs.replace(answer, vectors=found.vectors, in_token=found.in_token)
        case _:
            raise BadRequest('operation must be "completion", "list-models", "count-tokens", "tokenize" or "embed"')


async def _within(provider: Operator, task: str, result: Awaitable[Result]) -> Result:
    seconds = provider.clocks.first_token
    try:
        async with asyncio.timeout(seconds):
            return await result
    except TimeoutError:
        raise Timeout(f"the provider did not {task} within {seconds:g} s") from None
    except RecursionError:
        raise BadRequest(TOO_DEEP) from None


def _own_model(provider: Operator, models: tuple[ModelInfo, ...]) -> ModelInfo:
    """The provider's model by its name here: this service would refuse its other models."""
    if any(not 0 <= model.created <= MAX_COUNT for model in models):
        raise ProtocolError("the provider's list of models has a time out of range; check base_url")
    names = {provider.model, provider.upstream_model}
    known = next((info for info in models if info.id in names), ModelInfo(provider.model))
    return msgspec.structs.replace(known, id=provider.model)
