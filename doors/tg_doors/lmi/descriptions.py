"""LMI's operations -> the gateway's OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal

import msgspec

from tg_doors.lmi.answer_shapes import GeneratedText
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


class DescribedToken(msgspec.Struct, frozen=True):
    """A token. It has LMI's names, or with the operator's `tgi_compat` TGI's: `logprob` and `special`."""

    id: int
    text: str
    log_prob: float | None = None
    special_token: bool = False
    logprob: float | None = None
    special: bool = False
    error_msg: str = ""


_Tokens = tuple[DescribedToken, ...]
_Reason = Literal["length", "eos_token", "stop_sequence", "error"]


class DescribedSequence(msgspec.Struct, frozen=True):
    """One of several answers that is not the best."""

    finish_reason: _Reason
    generated_tokens: int
    tokens: _Tokens
    generated_text: str
    top_tokens: tuple[_Tokens, ...] = ()


class DescribedDetails(msgspec.Struct, frozen=True):
    """How an answer ended and, if it is whole, its tokens."""

    finish_reason: _Reason
    generated_tokens: int | None
    inputs: str | None
    tokens: _Tokens | None = None
    prefill: _Tokens = ()
    top_tokens: tuple[_Tokens, ...] = ()
    best_of_sequences: tuple[DescribedSequence, ...] = ()


class DescribedText(GeneratedText, frozen=True):
    """An answer."""

    details: DescribedDetails | None = None  # type: ignore[assignment]  # a schema has one name for a field


class DescribedItem(msgspec.Struct, frozen=True):
    """One of a list of answers; one that failed has `error`, and no text."""

    generated_text: str = ""
    details: DescribedDetails | None = None
    error: str = ""
    code: int = 0
    message: str = ""


class DescribedLine(msgspec.Struct, frozen=True):
    """A line, or an event. The last one has the text; the only one of a stream that failed at once is such, too."""

    token: DescribedToken
    generated_text: str = ""
    details: DescribedDetails | None = None


class Health(msgspec.Struct, frozen=True):
    """The answer to `/ping`."""

    status: Literal["Healthy", "Unhealthy"]


_OTHERS: Final = tuple(OpenAi.descriptions[name] for name in ("chat-completion", "completion"))
"""Operations of OpenAI's doors, whose bodies are answered here as there."""
_FAILURES: Final = (FrontEndFailure, PayloadFailure, HandlerFailure, DescribedText, DescribedLine, OpenAi.failure)
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
        answer=(DescribedText, tuple[DescribedItem, ...], Metered, *(other.answer for other in _OTHERS)),
        events=EVENTS,
        event=(DescribedLine, *(kind for other in _OTHERS for kind in other.event)),
        done=_OTHERS[0].done,
        further={JSON_LINES: (DescribedLine, Outputs, Metered, _OTHERS[0].event[0]), "text/plain": None},
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
