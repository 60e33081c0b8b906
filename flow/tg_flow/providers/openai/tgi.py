"""TextCompletionRequest -> Hugging Face's text-generation-inference -> LlmChunks: by its Messages API, or its own.

The Messages API is a variant of OpenAI's chat completions, with the model's chat template and tools. The server's own
`/generate_stream` takes a raw prompt, and reports all of its tokens.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from typing_extensions import override

from tg_base.llm import EventDecoder, ProviderOptions, RouteCall
from tg_flow.providers.openai.generation_decoder import (
    GenerationDecoder,
    generation_error,
    read_chat_ids,
    read_ids,
    read_prefill,
)
from tg_flow.providers.openai.generation_request import generation_parameters, scoring_parameters
from tg_flow.providers.openai.provider import ChatCompletions, OpenAiOptions
from tg_flow.providers.openai.raw_completions import RawCompletions, is_plain
from tg_schema import COMMON_FEATURES, Message, ModelInfo, TextCompletionRequest, Token, encode
from tg_schema.errors import BadRequest
from tg_schema.features import Feature

BASE_MODEL = "tgi"
"""The Messages API's name for the server's model without an adapter."""

Api = Literal["messages", "generate", "both"]

_OF_BOTH: frozenset[Feature] = frozenset({"schema", "stop", "seed", "top_p", "logprobs"})
_OF_CHATS: frozenset[Feature] = COMMON_FEATURES - {"top_k", "json", "penalties"}
_OF_TOKENS: frozenset[Feature] = frozenset({"tokenize", "count_tokens"})
_OF_RAW: frozenset[Feature] = frozenset(
    {
        *("raw", "echo", "max_prompt_tokens", "prompt_logprobs", "end_token", "keep_stop"),
        *("top_k", "typical_p", "penalties", "repetition_penalty", "regex"),
    }
)

API_FEATURES: Mapping[Api, frozenset[Feature]] = {
    "messages": _OF_CHATS,
    "generate": _OF_BOTH | _OF_RAW | _OF_TOKENS,
    "both": _OF_CHATS | _OF_RAW | _OF_TOKENS,
}
"""The features of a model, by the API that its option `api` chooses."""


class TgiOptions(OpenAiOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of TGI.

    Attributes:
        api: "messages" for conversations, "generate" for raw prompts, "both" for both kinds of request.
        parameters: further fields of the `parameters` of raw prompts, for instance `{ watermark = true }`.
        upstream_model: "tgi" for the server's base model, or the id of one of its adapters.
    """

    without: frozenset[Feature] = frozenset()
    base_url_variables: tuple[str, ...] = ("TGI_BASE_URL",)
    default_base_url: str | None = "http://localhost:8080/v1"
    key_variables: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("TGI_API_KEY",)
    key_needed: bool = False
    upstream_model: str | None = BASE_MODEL
    api: Api = "messages"
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)


class Tgi(RawCompletions[TgiOptions]):
    """A server of text-generation-inference, version 3.0 or later."""

    features = API_FEATURES["both"]
    optional_features = frozenset()
    wire = msgspec.structs.replace(ChatCompletions.wire, error_detail=generation_error, embedded=None)

    @classmethod
    @override
    def find_native_features(cls, options: ProviderOptions) -> frozenset[Feature]:
        api = options.api if isinstance(options, TgiOptions) else "messages"
        return super().find_native_features(options) & API_FEATURES[api]

    @override
    def make_chat(self, request: TextCompletionRequest) -> dict[str, Any]:
        messages = tuple(part for turn in request.messages for part in _split_turn(turn))
        return super().make_chat(msgspec.structs.replace(request, messages=messages))

    @override
    def body(self, request: TextCompletionRequest) -> Any:
        self._check_api(request)
        if is_plain(request):
            sampling = self.options.sampling(request)
            parameters = generation_parameters(request, sampling, self._adapter)
            return RouteCall(self._generation(request, parameters), "generate_stream")
        fields = self.fields(msgspec.structs.replace(request, schema=None))
        if request.schema is not None:
            # The server has its own response format for schemas: "json_object" with a `value`.
            fields["response_format"] = {"type": "json_object", "value": request.schema}
        return encode(fields)

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return GenerationDecoder(self.options.sampling(request)) if is_plain(request) else super().decoder(request)

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        # A server that is only used for raw prompts may lack OpenAI's routes.
        return (ModelInfo(self.model),) if self.options.api == "generate" else await super().models()

    @override
    async def score_prompt(self, request: TextCompletionRequest, alternatives: int) -> tuple[Token, ...]:
        self._check_api(request)
        if alternatives:
            raise BadRequest("prompt_logprobs: this server sends no alternatives to a prompt's tokens; ask for 0")
        call = RouteCall(self._generation(request, scoring_parameters(request, self._adapter)), "generate")
        return await self.read_answer(call, read_prefill)

    @override
    async def prompt_ids(self, request: TextCompletionRequest) -> tuple[int, ...]:
        self._check_api(request)
        if request.prompt_ids:
            return request.prompt_ids
        if request.raw:
            return await self._tokenized(request.prompt or "", begin=True)
        chat = self.make_chat(request)
        body = encode({name: chat[name] for name in ("model", "messages", "tools") if name in chat})
        return await self.read_answer(RouteCall(body, "chat_tokenize"), read_chat_ids)

    @override
    async def text_ids(self, text: str) -> tuple[int, ...]:
        return await self._tokenized(text, begin=False)

    async def _tokenized(self, text: str, *, begin: bool) -> tuple[int, ...]:
        body = encode({"inputs": text, "add_special_tokens": begin})
        return await self.read_answer(RouteCall(body, "tokenize"), read_ids)

    @property
    def _adapter(self) -> str | None:
        return None if self.upstream_model == BASE_MODEL else self.upstream_model

    def _generation(self, request: TextCompletionRequest, parameters: dict[str, Any]) -> bytes:
        fields = {**self.options.parameters, **parameters}
        return encode({"inputs": request.prompt, "parameters": fields})

    def _check_api(self, request: TextCompletionRequest) -> None:
        """Raise BadRequest for a field that only the other API has, or that neither API has."""
        if is_plain(request):
            return
        if self.options.api == "generate":
            raise BadRequest('this model takes raw prompts alone (api = "generate"); send `prompt` with `raw`')
        if raw := request.features & (_OF_RAW - _OF_CHATS):
            raise BadRequest(
                f"{', '.join(sorted(raw))}: this model has it for raw prompts alone; leave it out, or send a raw prompt"
            )


def _split_turn(turn: Message) -> Iterable[Message]:
    """Split a turn with text and calls in two: the server drops the calls of a message that has both."""
    if not turn.tool_calls or not turn.content:
        return (turn,)
    return Message(turn.role, turn.content), msgspec.structs.replace(turn, content="")
