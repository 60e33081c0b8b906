"""Ollama's operations -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tg_gateway.description import ASKING, Description
from tg_gateway.dialects.ollama.bodies import ChatBody, EmbedBody, EmbedOneBody, GenerateBody, ShowBody
from tg_gateway.dialects.ollama.failures import Failure
from tg_schema.errors import BadRequest

LINES: Final = "application/x-ndjson"
_OBJECT: Final = dict[str, Any]
_describe = partial(Description, group="Ollama", failure=Failure)
_ask = partial(_describe, answer=_OBJECT, raises=ASKING)
_FEW: Final = {"num_predict": 16}
_CHAT: Final = {"model": "tinydemo", "messages": [{"role": "user", "content": "Say hello."}], "options": _FEW}
_TEXT: Final = {"model": "tinydemo", "prompt": "Once upon a time", "options": _FEW}
_ABSENT: Final = ("pull", "push", "create", "copy", "delete")
"""What would change which models there are."""

OLLAMA_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "chat": _ask(
        summary="Continue a conversation",
        body=ChatBody,
        events=LINES,
        event=_OBJECT,
        examples={"streamed": _CHAT, "whole": {**_CHAT, "stream": False}},
    ),
    "generate": _ask(
        summary="Answer a prompt",
        body=GenerateBody,
        events=LINES,
        event=_OBJECT,
        examples={"streamed": _TEXT, "whole": {**_TEXT, "stream": False}},
    ),
    "embed": _ask(
        summary="Make vectors of texts", body=EmbedBody, examples={"texts": {"model": "tinydemo", "input": ["One"]}}
    ),
    "embed-one": _ask(
        summary="Make a vector of a text",
        body=EmbedOneBody,
        examples={"text": {"model": "tinydemo", "prompt": "One"}},
    ),
    "show": _ask(summary="Show a model", body=ShowBody, examples={"model": {"model": "tinydemo"}}),
    "tags": _describe(summary="List the models", answer=_OBJECT),
    "ps": _describe(summary="List the models that are loaded: all", answer=_OBJECT),
    "version": _describe(summary="Tell the version of the API", answer=_OBJECT),
    **{
        name: _describe(
            summary="Refuse to change which models there are",
            path={"digest": "sha256:0"},
            statuses=(501,),
            raises=(BadRequest,),
        )
        for name in _ABSENT
    },
}
