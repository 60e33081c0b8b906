"""TGI's operations -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tg_doors.tgi.answer_shapes import GeneratedText, TokenEvent
from tg_doors.tgi.failures import Failure
from tg_doors.tgi.generation_parameters import GenerateBody
from tg_doors.tgi.server_info import ServerInfo
from tg_doors.tgi.tokenization import PlacedToken, TokenizedChat
from tg_gateway.dialects import ASKING, EVENTS, Description
from tg_gateway.dialects.chat import ChatBody
from tg_schema.errors import NotFound, Unavailable

_describe = partial(Description, group="Text Generation Inference", failure=Failure)
_generate = partial(_describe, body=GenerateBody, raises=ASKING)
_FEW: Final = {"max_new_tokens": 16}
_WHOLE: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {"inputs": "Once upon a time", "parameters": _FEW},
    "details": {"inputs": "Once upon a time", "parameters": {**_FEW, "details": True}},
}

TGI_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "generate-compatible": _generate(
        summary="Continue a text, whole or as events",
        answer=tuple[GeneratedText, ...],
        events=EVENTS,
        event=(TokenEvent, Failure),
        examples={**_WHOLE, "streamed": {"inputs": "Once upon a time", "parameters": _FEW, "stream": True}},
    ),
    "generate": _generate(summary="Continue a text", answer=GeneratedText, examples=_WHOLE),
    "stream": _generate(
        summary="Continue a text as events",
        events=EVENTS,
        event=(TokenEvent, Failure),
        examples={"streamed": {"inputs": "Once upon a time", "parameters": _FEW}},
    ),
    "tokenize": _generate(
        summary="Make tokens of a text",
        answer=tuple[PlacedToken, ...],
        examples={"inputs": {"inputs": "Once upon a time"}},
    ),
    "tokenize-chat": _describe(
        summary="Make tokens of a conversation",
        body=ChatBody,
        required=("messages",),
        answer=TokenizedChat,
        raises=ASKING,
        examples={"messages": {"messages": [{"role": "user", "content": "Hello"}]}},
    ),
    "info": _describe(summary="Tell the model and the limits", answer=ServerInfo, raises=(NotFound, Unavailable)),
    "health": _describe(summary="Tell whether any model can be asked", raises=(Unavailable,)),
}
