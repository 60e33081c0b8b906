"""TextCompletionRequest -> a vLLM server -> LlmChunks; and its own routes for tokens, which are beside `/v1`."""

from typing import Any

import msgspec
from typing_extensions import override

from tg_base.llm import Detokenized
from tg_flow.providers.openai.provider import ChatCompletions, OpenAiOptions
from tg_flow.providers.openai.token_calls import DetokenizeCall, TokenizeCall
from tg_schema import TextCompletionRequest
from tg_schema.errors import BadRequest
from tg_schema.features import Feature

MAX_TOKENIZED_TEXTS = 64
"""Texts of one request; each is a call of its own."""

VLLM_FEATURES: frozenset[Feature] = frozenset(
    {
        "min_p",
        "repetition_penalty",
        "length_penalty",
        "min_tokens",
        "ignore_eos",
        "stop_ids",
        "keep_stop",
        "regex",
        "choice",
        "count_tokens",
        "tokenize",
        "detokenize",
    }
)
"""What vLLM's API has besides OpenAI's ("Extra parameters" of its chat API, "Tokenizer API")."""

_encode = msgspec.json.Encoder().encode


class _Tokenized(msgspec.Struct, frozen=True):
    tokens: tuple[int, ...]


class _Detokenized(msgspec.Struct, frozen=True):
    prompt: str


class Vllm(ChatCompletions[OpenAiOptions]):
    """A vLLM server, with the sampling fields that it has beyond OpenAI's."""

    features: frozenset[Feature] = ChatCompletions.features | VLLM_FEATURES

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        return len(await self._prompt_ids(request))

    @override
    async def tokenize(self, request: TextCompletionRequest) -> tuple[int, ...]:
        if not request.texts:
            return await self._prompt_ids(request)
        if len(request.texts) > MAX_TOKENIZED_TEXTS:
            raise BadRequest(f"texts: at most {MAX_TOKENIZED_TEXTS} can be tokenized at a time; ask several times")
        found = [await self._tokenized({"prompt": text, "add_special_tokens": False}) for text in request.texts]
        return tuple([token for ids in found for token in ids])

    @override
    async def detokenize(self, request: TextCompletionRequest) -> Detokenized:
        body = _encode({"model": self.upstream_model, "tokens": request.prompt_ids})
        return Detokenized((await self.read_answer(DetokenizeCall(body), _read_text)).prompt)

    async def _prompt_ids(self, request: TextCompletionRequest) -> tuple[int, ...]:
        if request.prompt_ids:
            return request.prompt_ids
        if request.raw:
            return await self._tokenized({"prompt": request.prompt, "add_special_tokens": True})
        asked = self.asked(request)
        tools = {"tools": asked.tools} if asked.tools else {}
        return await self._tokenized({"messages": asked.messages, "add_generation_prompt": True, **tools})

    async def _tokenized(self, fields: dict[str, Any]) -> tuple[int, ...]:
        call = TokenizeCall(_encode({"model": self.upstream_model, **fields}))
        return (await self.read_answer(call, _read_ids)).tokens


_read_ids = msgspec.json.Decoder(_Tokenized).decode
_read_text = msgspec.json.Decoder(_Detokenized).decode
