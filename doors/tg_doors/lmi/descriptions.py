"""LMI's operations -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal

import msgspec

from tg_doors.lmi.answer_shapes import Details, GeneratedText, TokenLine
from tg_doors.lmi.batch_writers import Outputs
from tg_doors.lmi.failures import FrontEndFailure, HandlerFailure, PayloadFailure
from tg_doors.lmi.invocation import InvocationBody
from tg_doors.lmi.line_writer import JSON_LINES, Metered
from tg_doors.lmi.parameters import LmiParameters
from tg_doors.lmi.payload_parts import EVENT_STREAM
from tg_gateway.dialects import ASKING, EVENTS, Description
from tg_gateway.dialects.openai import OpenAi
from tg_schema.errors import Unavailable

PARTS: Final = "generate-parts"
"""The operation whose answer comes in AWS's framing."""


class DescribedInvocation(InvocationBody, frozen=True, kw_only=True):
    """A request for one text, or for each of several."""

    parameters: LmiParameters | None = None  # type: ignore[assignment]  # what the bytes are read as


class DescribedItem(msgspec.Struct, frozen=True):
    """One of a list of answers; one that failed has `error`, and no text."""

    generated_text: str = ""
    details: Details | None = None
    error: str = ""
    code: int = 0
    message: str = ""


class Health(msgspec.Struct, frozen=True):
    """The answer to `/ping`."""

    status: Literal["Healthy", "Unhealthy"]


_OTHERS: Final = tuple(OpenAi.descriptions[name] for name in ("chat-completion", "completion"))
"""Operations of OpenAI's doors, whose bodies are answered here as there."""
_FAILURES: Final = (FrontEndFailure, PayloadFailure, HandlerFailure, GeneratedText, TokenLine, OpenAi.failure)
_FEW: Final[Mapping[str, Any]] = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 16}}
_describe = partial(Description, group="Large Model Inference", failure=_FAILURES)
_ask = partial(
    _describe,
    body=(DescribedInvocation, *(other.body for other in _OTHERS)),
    path={"model": "tinydemo", "version": "1"},
    raises=ASKING,
)

LMI_DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "generate": _ask(
        summary="Continue a text, or each of several",
        answer=(GeneratedText, tuple[DescribedItem, ...], Metered, *(other.answer for other in _OTHERS)),
        events=EVENTS,
        event=(TokenLine, *(kind for other in _OTHERS for kind in other.event)),
        done=_OTHERS[0].done,
        further={JSON_LINES: (TokenLine, Outputs, Metered, _OTHERS[0].event[0]), "text/plain": None},
        examples={
            "whole": _FEW,
            "lines": {**_FEW, "stream": True},
            "details": {**_FEW, "parameters": {"max_new_tokens": 4, "details": True}},
            "events": {**_FEW, "parameters": {"max_new_tokens": 4, "output_formatter": "sse"}, "stream": True},
            "metered": {**_FEW, "parameters": {"max_new_tokens": 4, "output_formatter": "3p"}},
            "several": {"inputs": ["One", "Two"], "parameters": {"max_new_tokens": 4}},
            "chat": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16},
        },
    ),
    PARTS: _ask(
        summary="Continue a text, in parts of AWS's event stream",
        further={EVENT_STREAM: None},
        examples={"lines": {**_FEW, "stream": True}},
    ),
    "ping": _describe(
        summary="Tell whether any model can be asked",
        answer=Health,
        failure=(Health, *_FAILURES),
        raises=(Unavailable,),
    ),
}
