"""Ollama's operations -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from tg_gateway.dialects import ASKING, Description
from tg_gateway.dialects.chat import TokenLogprob
from tg_gateway.dialects.ollama.answer_shape import AnsweredMessage, Tail
from tg_gateway.dialects.ollama.bodies import ChatBody, EmbedBody, EmbedOneBody, GenerateBody, ShowBody
from tg_gateway.dialects.ollama.failures import Failure
from tg_gateway.dialects.ollama.model_list import Models, ShownModel, Version
from tg_schema.errors import BadRequest

LINES: Final = "application/x-ndjson"


class _Piece(Tail, frozen=True, kw_only=True):
    model: str
    created_at: str
    logprobs: tuple[TokenLogprob, ...] = ()


class ChatAnswer(_Piece, frozen=True, kw_only=True):
    """A whole answer of `/api/chat`, or a line of it. The last line has the counts and the nanoseconds."""

    message: AnsweredMessage


class GenerateAnswer(_Piece, frozen=True, kw_only=True):
    """A whole answer of `/api/generate`, or a line of it. The last line has the counts and the nanoseconds."""

    response: str
    thinking: str | None = None


class EmbedAnswer(msgspec.Struct, frozen=True):
    """The vectors of several texts."""

    model: str
    embeddings: tuple[tuple[float, ...], ...]
    total_duration: int
    load_duration: int
    prompt_eval_count: int | None = None


class EmbedOneAnswer(msgspec.Struct, frozen=True):
    """The vector of one text."""

    embedding: tuple[float, ...]


_describe = partial(Description, group="Ollama", failure=Failure)
_ask = partial(_describe, raises=ASKING)
_FEW: Final = {"num_predict": 16}
_CHAT: Final = {"model": "tinydemo", "messages": [{"role": "user", "content": "Hello"}], "options": _FEW}
_TEXT: Final = {"model": "tinydemo", "prompt": "Once upon a time", "options": _FEW}
_ABSENT: Final = ("pull", "push", "create", "copy", "delete")
"""Operations that would change the set of models."""

OLLAMA_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "chat": _ask(
        summary="Continue a conversation",
        body=ChatBody,
        answer=ChatAnswer,
        events=LINES,
        event=(ChatAnswer, Failure),
        examples={"streamed": _CHAT, "whole": {**_CHAT, "stream": False, "logprobs": True}},
    ),
    "generate": _ask(
        summary="Answer a prompt",
        body=GenerateBody,
        answer=GenerateAnswer,
        events=LINES,
        event=(GenerateAnswer, Failure),
        examples={"streamed": _TEXT, "whole": {**_TEXT, "stream": False}},
    ),
    "embed": _ask(
        summary="Make vectors of texts",
        body=EmbedBody,
        answer=EmbedAnswer,
        examples={"texts": {"model": "tinydemo", "input": ["One"]}},
    ),
    "embed-one": _ask(
        summary="Make a vector of a text",
        body=EmbedOneBody,
        answer=EmbedOneAnswer,
        examples={"text": {"model": "tinydemo", "prompt": "One"}},
    ),
    "show": _ask(summary="Show a model", body=ShowBody, answer=ShownModel, examples={"model": {"model": "tinydemo"}}),
    "tags": _describe(summary="List the models", answer=Models),
    "ps": _describe(summary="List the models that are loaded", answer=Models),
    "version": _describe(summary="Tell the version of the API", answer=Version),
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
