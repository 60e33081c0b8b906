"""Gemini's responses -> LlmChunks: decodes one streamed answer, after the reference of `GenerateContentResponse`.

Only the fields that are used are declared; all others are skipped.
"""

from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final

import msgspec

from tg_base.llm import Embeddings, ErrorDetail, LlmChunk, UsageDeltas, event_error, write_signature
from tg_base.llm.gemini.request import ORIGIN, OWN_CALL_PREFIX
from tg_schema import FinishReason, ModelInfo, Token, ToolCallDelta, Usage, encode
from tg_schema.deltas import Count
from tg_schema.errors import IncompleteStream, ProtocolError

_FINISH: Final[Mapping[str, FinishReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "MODEL_ARMOR": "content_filter",
}
_NO_ID = -1
_UNKNOWN = Usage()


class _Call(msgspec.Struct, frozen=True):
    name: str
    args: dict[str, Any] = {}
    id: str | None = None


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    thought: bool = False
    function_call: _Call | None = None
    thought_signature: str | None = None


class _Content(msgspec.Struct, frozen=True):
    parts: tuple[_Part, ...] = ()


class _Logprob(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    token_id: int = _NO_ID
    log_probability: float | None = None


class _Top(msgspec.Struct, frozen=True):
    candidates: tuple[_Logprob, ...] = ()


class _Logprobs(msgspec.Struct, frozen=True, rename="camel"):
    chosen_candidates: tuple[_Logprob, ...] = ()
    top_candidates: tuple[_Top, ...] = ()


class _Candidate(msgspec.Struct, frozen=True, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    index: int = 0
    logprobs_result: _Logprobs | None = None


_NOTHING = _Candidate()


class _Usage(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    tool_use_prompt_token_count: int = 0
    candidates_token_count: int = 0
    thoughts_token_count: int = 0
    cached_content_token_count: int = 0


class _Feedback(msgspec.Struct, frozen=True, rename="camel"):
    block_reason: str | None = None


class _Detail(msgspec.Struct, frozen=True, rename="camel"):
    reason: str | None = None
    retry_delay: str | None = None


class _Fault(msgspec.Struct, frozen=True):
    code: int | None = None
    status: str | None = None
    details: tuple[_Detail, ...] = ()


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """One response of a stream: a part of an answer with the running usage, or an error."""

    candidates: tuple[_Candidate, ...] = ()
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    prompt_feedback: _Feedback | None = None
    error: _Fault | None = None


class _Model(msgspec.Struct, frozen=True):
    name: str


class _Models(msgspec.Struct, frozen=True, rename="camel"):
    models: tuple[_Model, ...] = ()
    publisher_models: tuple[_Model, ...] = ()


class _TokenCount(msgspec.Struct, frozen=True, rename="camel"):
    total_tokens: Count = 0


_decode = msgspec.json.Decoder(Event).decode


def error_detail(body: bytes) -> ErrorDetail:
    """The error code in an error's body (its reason, or else its status), and its `retryDelay`."""
    # Some errors of streaming calls arrive as a list with one object.
    read: Event | tuple[Event, ...] = msgspec.json.decode(body, type=Event | tuple[Event, ...])
    fault = next((event.error for event in (read if isinstance(read, tuple) else (read,)) if event.error), _Fault())
    return ErrorDetail(
        _word(fault), next((_seconds(detail.retry_delay) for detail in fault.details if detail.retry_delay), None)
    )


def _word(fault: _Fault) -> str:
    return next((detail.reason for detail in fault.details if detail.reason), fault.status) or ""


def _seconds(delay: str) -> float | None:
    """Parse a protobuf `Duration` in JSON: seconds with the suffix `s`."""
    try:
        return float(delay.removesuffix("s"))
    except ValueError:
        return None


def model_list(body: bytes) -> tuple[ModelInfo, ...]:
    """The models of a list, their names without the resource path."""
    read = msgspec.json.decode(body, type=_Models)
    return tuple(ModelInfo(model.name.rpartition("/")[2], "google") for model in (*read.models, *read.publisher_models))


def token_count(body: bytes) -> int:
    """The tokens of a `countTokens` answer, which leaves out a count of 0."""
    return msgspec.json.decode(body, type=_TokenCount).total_tokens


class _Vector(msgspec.Struct, frozen=True):
    values: tuple[float, ...]


class _Embedded(msgspec.Struct, frozen=True):
    embeddings: tuple[_Vector, ...]


def read_embeddings(body: bytes) -> Embeddings:
    """The vectors of a `batchEmbedContents` answer, which has no token counts."""
    answer = msgspec.json.decode(body, type=_Embedded)
    return Embeddings(tuple([each.values for each in answer.embeddings]))


class StreamDecoder:
    """Responses in, chunks out.

    Attributes:
        done: whether the answer is complete, usage included.
    """

    def __init__(self) -> None:
        self.done = False
        self._counts = UsageDeltas()
        self._calls = 0

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk of a response; None for a response without content.

        Raises:
            ProtocolError: the model generated a malformed call.
            ContentFilter: the prompt was blocked.
            TgError: the provider reports an error in its stream.
            Exception: as `EventDecoder`.
        """
        event = _decode(data)
        if event.error is not None:
            raise event_error(event.error.code, _word(event.error))
        if event.prompt_feedback is not None and event.prompt_feedback.block_reason:
            raise event_error("content_filter")
        candidate = next((candidate for candidate in event.candidates if candidate.index == 0), _NOTHING)
        counts = self._convert_usage(event.usage_metadata)
        if candidate is _NOTHING and counts is _UNKNOWN:
            return None
        return self._convert_candidate(candidate, counts, event.model_version)

    def _convert_candidate(self, candidate: _Candidate, counts: Usage, model: str | None) -> LlmChunk:
        parts = candidate.content.parts if candidate.content else ()
        reason = candidate.finish_reason
        text = reasoning = ""
        signature: str | None = None
        calls: tuple[ToolCallDelta, ...] = ()
        for part in parts:
            if part.function_call is not None:
                calls += (self._call(part.function_call, _signature(part)),)
                continue
            signature = _signature(part) or signature
            if part.thought:
                reasoning += part.text or ""
            else:
                text += part.text or ""
        chunk = LlmChunk(
            text,
            model=model,
            finish_reason=self._finish(reason, counted=counts is not _UNKNOWN) if reason else None,
            reasoning=reasoning or None,
            tokens=_tokens(candidate.logprobs_result) if candidate.logprobs_result else (),
            tool_calls=calls,
            signature=signature,
        )
        return chunk if counts is _UNKNOWN else chunk.with_usage(counts)

    def _call(self, call: _Call, signature: str | None) -> ToolCallDelta:
        """Calls are never split. Not every model sends an id; one is generated if it is missing."""
        call_id = call.id or f"{OWN_CALL_PREFIX}{token_hex(8)}"
        self._calls += 1
        return ToolCallDelta(self._calls - 1, call_id, call.name, encode(call.args).decode(), signature)

    def _finish(self, reason: str, *, counted: bool) -> FinishReason | None:
        if reason == "FINISH_REASON_UNSPECIFIED":
            return None
        finish = _FINISH.get(reason)
        if finish is None and ("TOOL_CALL" in reason or "FUNCTION_CALL" in reason):
            raise ProtocolError("the model wrote a malformed tool call; ask again, or simplify the tools")
        if finish is None:
            raise IncompleteStream("the provider stopped the answer for a reason of its own; ask again")
        # Without usage in the same response the reader continues, since the usage may follow in another one.
        self.done = counted
        # Gemini has no finish reason of its own for tool calls.
        return "tool_calls" if finish == "stop" and self._calls else finish

    def _convert_usage(self, usage: _Usage | None) -> Usage:
        """Convert totals to deltas. Our count of the answer includes thinking, Gemini's does not. Absent = 0."""
        if usage is None or usage.prompt_token_count is None:
            return _UNKNOWN
        thoughts = usage.thoughts_token_count
        return self._counts.add_totals(
            Usage(
                in_token=usage.prompt_token_count + usage.tool_use_prompt_token_count,
                out_token=usage.candidates_token_count + thoughts,
                cached_token=usage.cached_content_token_count,
                reasoning_token=thoughts,
            )
        )


def _signature(part: _Part) -> str | None:
    return write_signature(ORIGIN, part.thought_signature) if part.thought_signature else None


def _tokens(logprobs: _Logprobs) -> tuple[Token, ...]:
    tops = logprobs.top_candidates
    return tuple(
        Token(
            chosen.token_id,
            chosen.token,
            chosen.log_probability,
            tuple(
                (top.token_id, top.log_probability)
                for top in (tops[number].candidates if number < len(tops) else ())
                if top.log_probability is not None
            ),
            top_texts=tuple(
                top.token
                for top in (tops[number].candidates if number < len(tops) else ())
                if top.log_probability is not None
            ),
        )
        for number, chosen in enumerate(logprobs.chosen_candidates)
    )
