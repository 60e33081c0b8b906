"""Anthropic's operations -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tg_gateway.dialects import ASKING, EVENTS, Description
from tg_gateway.dialects.anthropic.body import MessageBody
from tg_gateway.dialects.anthropic.failures import MessageFailure
from tg_gateway.dialects.anthropic.wire import AnswerMessage, BlockDelta, Event, Model, ModelList, Ping, TokenCount
from tg_schema.errors import NotFound

_describe = partial(Description, group="Anthropic", failure=MessageFailure)
_HELLO: Final[Mapping[str, Any]] = {"model": "tinydemo", "messages": [{"role": "user", "content": "Hello"}]}

ANTHROPIC_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "message": _describe(
        summary="Continue a conversation",
        body=MessageBody,
        required=("messages", "max_tokens"),
        answer=AnswerMessage,
        events=EVENTS,
        event=(Event, BlockDelta, Ping, MessageFailure),
        raises=ASKING,
        examples={
            "whole": {**_HELLO, "max_tokens": 16},
            "streamed": {**_HELLO, "max_tokens": 64, "stream": True},
        },
    ),
    "count": _describe(
        summary="Count the tokens of a conversation",
        body=MessageBody,
        required=("messages",),
        answer=TokenCount,
        raises=ASKING,
        examples={"count": _HELLO},
    ),
    "models": _describe(summary="List the models", answer=ModelList),
    "model": _describe(summary="Show a model", answer=Model, path={"model": "tinydemo"}, raises=(NotFound,)),
    "probe": _describe(summary="Tell whether anybody is there"),
}
