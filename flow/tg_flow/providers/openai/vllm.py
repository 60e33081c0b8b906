"""TextCompletionRequest -> a vLLM server -> LlmChunks. Its own routes for tokens are next to `/v1`, not below it."""

from typing import Any

import msgspec
from typing_extensions import override

from tg_base.llm import Detokenized, EventDecoder, RouteCall, Scores
from tg_flow.providers.openai.completion_stream import CompletionDecoder, prompt_token, read_prompt_tokens
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_flow.providers.openai.raw_completions import RawCompletions, is_plain
from tg_schema import Sampling, TextCompletionRequest, Token, encode
from tg_schema.errors import BadRequest, ProtocolError
from tg_schema.features import CONTINUATION, Feature

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
        "raw",
        "prompt_ids",
        "echo",
        "score",
        "prompt_logprobs",
    }
)
"""Features of vLLM's API beyond OpenAI's ("Extra parameters" of its chat and completions APIs, "Tokenizer API")."""

_OF_CHATS = (
    *("messages", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort"),
    *("logprobs", "top_logprobs", "max_tokens", "max_completion_tokens"),
)
"""Fields of a chat that a completion does not have, or that mean something else there."""


class _Tokenized(msgspec.Struct, frozen=True):
    tokens: tuple[int, ...]


class _Detokenized(msgspec.Struct, frozen=True):
    prompt: str


class Vllm(RawCompletions[OpenAiOptions]):
    """A vLLM server, with the sampling fields that it has beyond OpenAI's."""

    features: frozenset[Feature] = RawCompletions.features | VLLM_FEATURES
    optional_features = RawCompletions.optional_features | {CONTINUATION}

    @override
    async def score_prompt(self, request: TextCompletionRequest, alternatives: int) -> tuple[Token, ...]:
        return await self._ranked(request, await self.prompt_ids(request), alternatives)

    @override
    async def prompt_text(self, request: TextCompletionRequest) -> str:
        return (await self.detokenize(request)).text if request.prompt_ids else await super().prompt_text(request)

    @override
    def body(self, request: TextCompletionRequest) -> Any:
        if not is_plain(request):
            return super().body(request)
        fields = {name: value for name, value in self.fields(request).items() if name not in _OF_CHATS}
        sampling = self.options.sampling(request)
        # Send the limit even if there is none: the server's default for a completion is only 16 tokens.
        fields |= {"prompt": request.prompt_ids or request.prompt or "", "max_tokens": sampling.max_tokens}
        if sampling.logprobs is not None:
            fields |= {"logprobs": sampling.logprobs, "return_token_ids": True}
        return RouteCall(encode(fields), "completions")

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        if not is_plain(request):
            return super().decoder(request)
        return CompletionDecoder(request.sampling.logprobs or 0 if request.sampling else 0)

    @override
    async def score(self, request: TextCompletionRequest) -> Scores:
        sampling = request.sampling or Sampling()
        if sampling.logit_bias:
            raise BadRequest("logit_bias: this server scores tokens without it; leave it out")
        prompt = await self.prompt_ids(request)
        most = max(sampling.logprobs or 0, sampling.prompt_logprobs or 0)
        tokens = await self._ranked(request, (*prompt, *request.scored), most)
        scored = [_with_alternatives(token, sampling.prompt_logprobs or 0) for token in tokens[: len(prompt)]]
        return Scores(
            tuple([_with_alternatives(token, sampling.logprobs or 0) for token in tokens[len(prompt) :]]),
            () if sampling.prompt_logprobs is None else tuple(scored),
            len(tokens),
        )

    async def _ranked(
        self, request: TextCompletionRequest, ids: tuple[int, ...], alternatives: int
    ) -> tuple[Token, ...]:
        """The tokens `ids` as a prompt, each with its log-probability, given the tokens before it."""
        fields = {"prompt": ids, "max_tokens": 1, "prompt_logprobs": alternatives, "return_token_ids": True}
        call = RouteCall(encode({"model": self.upstream_model, **fields, **self._hints(request)}), "completions")
        evaluated, ranked = await self.read_answer(call, read_prompt_tokens)
        if evaluated != ids:
            raise ProtocolError("the provider did not score the tokens that it was asked for")
        return tuple([prompt_token(id_, found, alternatives) for id_, found in zip(evaluated, ranked, strict=True)])

    @override
    async def detokenize(self, request: TextCompletionRequest) -> Detokenized:
        body = encode({"model": self.upstream_model, "tokens": request.prompt_ids})
        return Detokenized((await self.read_answer(RouteCall(body, "detokenize"), _read_text)).prompt)

    @override
    async def prompt_ids(self, request: TextCompletionRequest) -> tuple[int, ...]:
        if request.prompt_ids:
            return request.prompt_ids
        if request.raw:
            return await self._tokenized({"prompt": request.prompt, "add_special_tokens": True})
        chat = self.make_chat(request)
        asked: dict[str, Any] = {name: chat[name] for name in ("messages", "tools") if name in chat}
        return await self._tokenized({**asked, "add_generation_prompt": True})

    @override
    async def text_ids(self, text: str) -> tuple[int, ...]:
        return await self._tokenized({"prompt": text, "add_special_tokens": False})

    async def _tokenized(self, fields: dict[str, Any]) -> tuple[int, ...]:
        call = RouteCall(encode({"model": self.upstream_model, **fields}), "tokenize")
        return (await self.read_answer(call, _read_ids)).tokens


def _with_alternatives(token: Token, most: int) -> Token:
    return msgspec.structs.replace(token, top=token.top[:most], top_texts=token.top_texts[:most])


_read_ids = msgspec.json.Decoder(_Tokenized).decode
_read_text = msgspec.json.Decoder(_Detokenized).decode
