"""OpenAI's protocol over HTTP: what a path means, and how requests, answers and errors are encoded."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, Final, Literal

import msgspec
from typing_extensions import override

from tg_gateway.dialects import (
    ASKING,
    EVENTS,
    Answer,
    Ask,
    Batch,
    Call,
    CompletionWriter,
    Description,
    FieldNames,
    Mount,
    Writer,
    list_unknown,
    show_ignored,
)
from tg_gateway.dialects.chat import (
    DIALECT,
    OPENAI_STYLE,
    AnswerStyle,
    ChatBody,
    ChatCompletion,
    ChatStreamWriter,
    ChunkChoice,
    CompletionUsage,
    Failure,
    OpenAiShaped,
    SamplingBody,
    TextInput,
    decode_body,
    encode_chat,
    find_asked_model,
    list_ignored,
    read_request,
    restore_chat,
)
from tg_gateway.dialects.openai.completion_request import (
    CompletionBody,
    is_scoring,
    read_prompts,
    read_requests,
)
from tg_gateway.dialects.openai.completion_writers import CompletionStreamWriter, TextCompletion, encode_completion
from tg_gateway.dialects.openai.models import Model, ModelList, encode_model, encode_models
from tg_schema import TextCompletionResponse
from tg_schema.errors import NotFound

_describe = partial(Description, group="OpenAI", failure=Failure)
_HELLO: Final = ({"role": "user", "content": "Hello"},)
_DONE: Final = "[DONE]"


class ChatChunk(msgspec.Struct, frozen=True):
    """An event of a streamed chat, as `chat.writers` writes it piece by piece; the last event is `[DONE]`."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    usage: CompletionUsage | msgspec.UnsetType | None = msgspec.UNSET


_SHARED: Final = {
    "stop_ids": "stop_token_ids",
    "keep_stop": "include_stop_str_in_output",
    "schema": "response_format",
    "regex": "structured_outputs.regex",
    "choice": "structured_outputs.choice",
}
CHAT_FIELDS: Final = FieldNames(
    _SHARED
    | {
        "logprobs": "top_logprobs",
        "reasoning": "reasoning_effort",
        **{name: name for name in ("max_tokens", "messages", "tool_choice", "tools")},
    }
)
COMPLETION_FIELDS: Final = FieldNames(_SHARED | {"echo": "echo", "suffix": "suffix"})


class OpenAi(OpenAiShaped):
    """Models, chat completions and completions, as OpenAI's SDKs ask for them.

    Args:
        style: how answers differ, for the clients of another server with this API.
    """

    precedence = 1
    descriptions: ClassVar[Mapping[str, Description]] = {
        "list-models": _describe(summary="List the models", answer=ModelList),
        "show-model": _describe(summary="Show a model", answer=Model, path={"model": "tinydemo"}, raises=(NotFound,)),
        "chat-completion": _describe(
            summary="Continue a conversation",
            body=ChatBody,
            required=("model", "messages"),
            answer=ChatCompletion,
            events=EVENTS,
            event=(ChatChunk, Failure),
            done=_DONE,
            raises=ASKING,
            examples={
                "whole": {"model": "tinydemo", "messages": _HELLO, "max_tokens": 16},
                "streamed": {"model": "tinydemo", "messages": _HELLO, "max_tokens": 64, "stream": True},
            },
        ),
        "completion": _describe(
            summary="Continue a text",
            body=CompletionBody,
            required=("model", "prompt"),
            answer=TextCompletion,
            events=EVENTS,
            event=(TextCompletion, Failure),
            done=_DONE,
            raises=ASKING,
            examples={
                "whole": {"model": "tinydemo", "prompt": "Once upon a time", "max_tokens": 16},
                "streamed": {"model": "tinydemo", "prompt": "Once upon a time", "max_tokens": 64, "stream": True},
                "several": {"model": "tinydemo", "prompt": ["One", "Two"], "max_tokens": 4, "n": 2, "logprobs": 1},
            },
        ),
    }
    failure = Failure
    """The JSON of a refusal."""

    def __init__(self, style: AnswerStyle = OPENAI_STYLE) -> None:
        self._style = style

    @override
    def parse(self, call: Call) -> Ask | Answer:
        match call.operation:
            case "list-models":
                return Answer(encode_models(call.catalogue, self._style.owner))
            case "show-model":
                return Answer(encode_model(call.catalogue, call.path["model"], self._style.owner))
            case "completion":
                return self._parse_completion(call)
            case _:
                return self._parse_chat(call)

    @override
    def restore(self, form: bytes) -> Writer[TextCompletionResponse]:
        writer = restore_chat(form, self._style)
        writer.fields = CHAT_FIELDS
        return writer

    def _parse_chat(self, call: Call) -> Ask:
        body = decode_body(ChatBody, call.body)
        found = find_asked_model(call, body.model, required=self._style.model_required)
        request = read_request(body, found)
        writer = _make_chat_writer(body, found.model or body.model or "", self._style)
        ignored = show_ignored(DIALECT, list_ignored(call.body, body, found))
        return Ask(found.route, request, writer, bool(body.stream), fields=CHAT_FIELDS, headers=ignored)

    def _parse_completion(self, call: Call) -> Ask:
        body = decode_body(CompletionBody, call.body)
        found = find_asked_model(call, body.model, required=self._style.model_required)
        prompts = read_prompts(body)
        requests = read_requests(body, prompts, found)
        writer = _make_completion_writer(body, prompts, found.model or body.model or "", self._style)
        ignored = show_ignored(DIALECT, list_unknown(call.body, CompletionBody))
        batch = Batch(requests, body.n or 1)
        return Ask(found.route, batch, writer, bool(body.stream), fields=COMPLETION_FIELDS, headers=ignored)


def _asks_usage(body: SamplingBody) -> bool:
    return bool(body.stream_options and body.stream_options.include_usage)


def _make_completion_writer(
    body: CompletionBody, prompts: Sequence[TextInput], model: str, style: AnswerStyle
) -> Writer[TextCompletionResponse]:
    answers = len(prompts) * (body.n or 1)
    scored = prompts if is_scoring(body) else ()
    name = style.name_answer(body.user)
    if not body.stream:
        return CompletionWriter(partial(encode_completion, model=model, answers=answers, scored=scored, name=name))
    return CompletionStreamWriter(
        model, answers, include_usage=_asks_usage(body), scored=scored, style=style, name=name
    )


def _make_chat_writer(body: ChatBody, model: str, style: AnswerStyle) -> Writer[TextCompletionResponse]:
    n = body.n or 1
    name = style.name_answer(body.user)
    if not body.stream:
        return CompletionWriter(partial(encode_chat, model=model, n=n, name=name))
    return ChatStreamWriter(model, n, include_usage=_asks_usage(body), style=style, name=name)


OPENAI: Final = OpenAi()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("GET", "/v1/models", OPENAI, "list-models"),
    Mount("GET", "/v1/models/{model}", OPENAI, "show-model"),
    Mount("POST", "/v1/chat/completions", OPENAI, "chat-completion", large=True),
    Mount("POST", "/v1/completions", OPENAI, "completion", large=True),
)
"""Where OpenAI's protocol is: the base URL of its SDKs is `http://HOST:PORT/v1`."""
