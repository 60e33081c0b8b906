"""LMI's operations -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal

import msgspec

from tg_gateway.description import ASKING, EVENTS, Description
from tg_gateway.dialects.lmi.answer_shapes import GeneratedText
from tg_gateway.dialects.lmi.failures import FrontEndFailure, HandlerFailure, PayloadFailure
from tg_gateway.dialects.lmi.invocation import InvocationBody
from tg_gateway.dialects.lmi.line_writer import JSON_LINES
from tg_gateway.dialects.lmi.parameters import LmiParameters
from tg_gateway.dialects.lmi.payload_parts import EVENT_STREAM
from tg_gateway.dialects.openai import OpenAi
from tg_schema.errors import Unavailable

PARTS: Final = "generate-parts"
"""The operation whose answer comes in AWS's framing."""


class DescribedInvocation(InvocationBody, frozen=True, kw_only=True):
    """A request for one text, or for each of several."""

    parameters: LmiParameters | None = None  # type: ignore[assignment]  # what the bytes are read as


class DescribedText(GeneratedText, frozen=True):
    """An answer. The names in its details depend on the operator's configuration."""

    details: dict[str, Any] | None = None  # type: ignore[assignment]  # a schema has one name for a field


class FailedLine(msgspec.Struct, frozen=True):
    """The only line of a stream that failed before its first one."""

    token: dict[str, Any]
    generated_text: str
    details: dict[str, Any]


class Health(msgspec.Struct, frozen=True):
    """The answer to `/ping`."""

    status: Literal["Healthy", "Unhealthy"]


_OTHERS: Final = tuple(OpenAi.descriptions[name] for name in ("chat-completion", "completion"))
"""Whose bodies are answered here as at their own doors."""
_FAILURES: Final = (FrontEndFailure, PayloadFailure, HandlerFailure, DescribedText, FailedLine, OpenAi.failure)
_FEW: Final[Mapping[str, Any]] = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 16}}
_describe = partial(Description, group="Large Model Inference", failure=_FAILURES)
_ask = partial(
    _describe,
    body=(DescribedInvocation, *(other.body for other in _OTHERS)),
    path={"model": "tinydemo"},
    raises=ASKING,
)

LMI_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "generate": _ask(
        summary="Continue a text, or each of several",
        answer=(DescribedText, tuple[DescribedText, ...], *(other.answer for other in _OTHERS)),
        events=EVENTS,
        further=(JSON_LINES, "text/plain"),
        examples={
            "whole": _FEW,
            "lines": {**_FEW, "stream": True},
            "several": {"inputs": ["One", "Two"], "parameters": {"max_new_tokens": 4}},
            "chat": {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16},
        },
    ),
    PARTS: _ask(
        summary="Continue a text, in parts of AWS's event stream",
        further=(EVENT_STREAM,),
        examples={"lines": {**_FEW, "stream": True}},
    ),
    "ping": _describe(
        summary="Tell whether any model can be asked",
        answer=Health,
        failure=(Health, *_FAILURES),
        raises=(Unavailable,),
    ),
}
