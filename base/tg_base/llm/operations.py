"""TextCompletionRequest with another operation than "completion" -> the records that answer it."""

import asyncio
from collections.abc import Sequence
from typing import Final, get_args

import msgspec

from tg_base.llm.core import LlmChunk
from tg_base.llm.guard import TOO_DEEP, Clocks, check_numbers
from tg_schema import ModelInfo, TextCompletionRequest, TextCompletionResponse, Token, encode
from tg_schema.deltas import MAX_COUNT
from tg_schema.errors import BadRequest, ProtocolError, Timeout
from tg_schema.features import describe_missing
from tg_schema.text_completion import Operation

MAX_RECORD_BYTES: Final = 256 * 1024
"""JSON bytes of token ids, tokens or vectors in one record; a longer answer comes in several."""

EDITS: Final = frozenset({"load-adapter", "unload-adapter"})
"""Operations that change a provider's adapters."""

_TASKS: Final = {
    "list-models": "list its models",
    "count-tokens": "count the tokens",
    "tokenize": "tokenize the prompt",
    "detokenize": "turn the ids into text",
    "score": "score the tokens",
    "embed": "embed the texts",
    "load-adapter": "change its adapters",
    "unload-adapter": "change its adapters",
}
"""The work that a provider did not complete in time, by the operation."""


class Embeddings(msgspec.Struct, frozen=True):
    """The vectors of some texts, one for each.

    Attributes:
        vectors: in the order of the texts.
        in_token: tokens of all texts; None = unknown.
    """

    vectors: tuple[tuple[float, ...], ...]
    in_token: int | None = None


class Detokenized(msgspec.Struct, frozen=True):
    """The text of some token ids.

    Attributes:
        text: the text of all tokens; a control token is its name.
        tokens: each token by itself, if `token_texts` asked for that.
    """

    text: str
    tokens: tuple[Token, ...] = ()


class Scores(msgspec.Struct, frozen=True):
    """How probable a model takes given tokens to be.

    Attributes:
        tokens: the scored tokens, each with its log-probability after all tokens before it.
        prompt_tokens: the tokens of the prompt, if `prompt_logprobs` asked for them; the first has no log-probability.
        in_token: the prompt's tokens and the scored ones together; None = unknown.
    """

    tokens: tuple[Token, ...] = ()
    prompt_tokens: tuple[Token, ...] = ()
    in_token: int | None = None


class Operator:
    """The operations of a provider besides answers; each raises the TgErrors of `LlmService.generate_content`."""

    model: str
    upstream_model: str
    clocks: Clocks

    async def models(self) -> tuple[ModelInfo, ...]:
        """The provider's list of models; override it if the API has one."""
        return (ModelInfo(self.model),)

    async def count_tokens(self, request: TextCompletionRequest) -> int:
        """The number of the prompt's tokens; override it and announce "count_tokens"."""
        raise BadRequest(describe_missing(("count_tokens",)))

    async def tokenize(self, request: TextCompletionRequest) -> tuple[int, ...]:
        """The token ids of `texts`, one text after the other, or else of the prompt as the model gets it.

        Override it and announce "tokenize". Raises as `generate_content`.
        """
        raise BadRequest(describe_missing(("tokenize",)))

    async def detokenize(self, request: TextCompletionRequest) -> Detokenized:
        """The text of `prompt_ids`; override it and announce "detokenize".

        With `token_texts` the answer also has each token; announce that as "token_texts". Raises as `generate_content`.
        """
        raise BadRequest(describe_missing(("detokenize",)))

    async def score(self, request: TextCompletionRequest) -> Scores:
        """The log-probabilities of `scored` after the prompt; override it and announce "score".

        `sampling.logprobs` is the number of alternatives to each token. `sampling.prompt_logprobs` also asks for the
        prompt's log-probabilities; announce that as "prompt_logprobs". Raises as `generate_content`.
        """
        raise BadRequest(describe_missing(("score",)))

    async def embed(self, request: TextCompletionRequest) -> Embeddings:
        """A vector for each of `texts`, or of `id_lists`; override it and announce "embed".

        Raises as `generate_content`.
        """
        raise BadRequest(describe_missing(("embed",)))

    async def load_adapter(self, request: TextCompletionRequest) -> None:
        """Make the LoRA adapter `adapter` of the file `adapter_path` known; override it and announce "load_adapter".

        Call `announce` once the adapter is known. Raises as `generate_content`.
        """
        raise BadRequest(describe_missing(("load_adapter",)))

    async def unload_adapter(self, request: TextCompletionRequest) -> None:
        """Forget the LoRA adapter `adapter`; like `load_adapter`."""
        raise BadRequest(describe_missing(("load_adapter",)))


async def operate(provider: Operator, request: TextCompletionRequest) -> Sequence[TextCompletionResponse]:
    """The answer to a checked request, in records small enough to travel.

    Raises:
        TgError: the provider's, or a Timeout: all operations must end within `clocks.first_token`.
    """
    seconds = provider.clocks.first_token
    try:
        async with asyncio.timeout(seconds):
            answer = await _answer(provider, request)
    except TimeoutError:
        raise Timeout(f"the provider did not {_TASKS[request.operation or '']} within {seconds:g} s") from None
    # An SDK walks through nested values in Python, and exhausts the stack sooner than our decoder did.
    except RecursionError:
        raise BadRequest(TOO_DEEP) from None
    return answer.cut(MAX_RECORD_BYTES) if len(encode(answer)) > MAX_RECORD_BYTES else (answer,)


async def _answer(provider: Operator, request: TextCompletionRequest) -> TextCompletionResponse:
    answer = TextCompletionResponse(response="", model=provider.model, end_of_stream=True)
    match request.operation:
        case "list-models":
            listed = _own_model(provider, await provider.models())
            answer = TextCompletionResponse(response="", models=(listed,), end_of_stream=True)
        case "count-tokens":
            count = await provider.count_tokens(request)
            if not 0 <= count <= MAX_COUNT:
                raise ProtocolError("the provider counts tokens out of range")
            return msgspec.structs.replace(answer, in_token=count)
        case "tokenize":
            ids = await provider.tokenize(request)
            tokens = await _texts(provider, request, ids) if request.token_texts else ()
            return msgspec.structs.replace(answer, ids=ids, tokens=tokens)
        case "detokenize":
            found = await provider.detokenize(request)
            return msgspec.structs.replace(answer, response=found.text, tokens=found.tokens)
        case "score":
            return _scored(answer, request, await provider.score(request))
        case "embed":
            return _embedded(answer, request, await provider.embed(request))
        case "load-adapter":
            await provider.load_adapter(request)
        case "unload-adapter":
            await provider.unload_adapter(request)
        case _:
            *others, last = [f'"{name}"' for name in get_args(Operation)]
            raise BadRequest(f"operation must be {', '.join(others)} or {last}")
    return answer


async def _texts(provider: Operator, request: TextCompletionRequest, ids: tuple[int, ...]) -> tuple[Token, ...]:
    asked = msgspec.structs.replace(request, operation="detokenize", prompt=None, messages=(), texts=(), prompt_ids=ids)
    return (await provider.detokenize(asked)).tokens


def _scored(answer: TextCompletionResponse, request: TextCompletionRequest, scores: Scores) -> TextCompletionResponse:
    if tuple(token.id for token in scores.tokens) != request.scored:
        raise ProtocolError("the provider did not score the tokens that it was asked for")
    chunk = check_numbers(LlmChunk(tokens=scores.tokens, in_token=scores.in_token))
    return msgspec.structs.replace(
        answer, tokens=chunk.tokens, prompt_tokens=scores.prompt_tokens, in_token=chunk.in_token
    )


def _embedded(
    answer: TextCompletionResponse, request: TextCompletionRequest, found: Embeddings
) -> TextCompletionResponse:
    if len(found.vectors) != len(request.texts or request.id_lists):
        raise ProtocolError("the provider did not send one vector for each text")
    if len({len(vector) for vector in found.vectors}) > 1 or not found.vectors[0]:
        raise ProtocolError("the provider sent vectors of different lengths, or empty ones")
    count = check_numbers(LlmChunk(in_token=found.in_token)).in_token
    return msgspec.structs.replace(answer, vectors=found.vectors, in_token=count)


def _own_model(provider: Operator, models: tuple[ModelInfo, ...]) -> ModelInfo:
    """Our model as the provider lists it, under our name: this service would refuse the provider's other models."""
    if any(not 0 <= model.created <= MAX_COUNT for model in models):
        raise ProtocolError("the provider's list of models has a time out of range; check base_url")
    names = {provider.model, provider.upstream_model}
    known = next((info for info in models if info.id in names), ModelInfo(provider.model))
    return msgspec.structs.replace(known, id=provider.model)
