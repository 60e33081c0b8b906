"""OpenAI's operations -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Final, Literal

import msgspec

from tg_gateway.dialects import ASKING, EVENTS, Description
from tg_gateway.dialects.chat import ChatBody, ChatCompletion, ChunkChoice, CompletionUsage, Failure
from tg_gateway.dialects.openai.completion_request import CompletionBody
from tg_gateway.dialects.openai.completion_shapes import TextCompletion
from tg_gateway.dialects.openai.models import Model, ModelList
from tg_schema.errors import NotFound

_describe = partial(Description, group="OpenAI", failure=Failure)
_HELLO: Final = ({"role": "user", "content": "Hello"},)
_DONE: Final = "[DONE]"


class ChatChunk(msgspec.Struct, frozen=True):
    """An event of a streamed chat, as `chat_writers.py` writes it piece by piece; the last event is `[DONE]`."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    usage: CompletionUsage | msgspec.UnsetType | None = msgspec.UNSET


OPENAI_DESCRIPTIONS: Final[Mapping[str, Description]] = {
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
