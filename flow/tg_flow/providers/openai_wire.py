"""OpenAI's chat completions <-> our records: pure functions of values, after the public API reference.

What we read of an event is modelled and nothing else; other fields of compatible servers are passed over.
"""

from typing import Any

import msgspec

from tg_base.llm_chunk import LlmChunk
from tg_base.provider_errors import event_error
from tg_schema import Sampling, TextCompletionRequest, Token
from tg_schema.errors import BadRequest, ContentFilter, ProtocolError

NO_ID = -1
"""A token's id where the provider tells the token's text alone, as OpenAI's API does."""

_FINISH = {"stop": "stop", "length": "length", "max_tokens": "length", "content_filter": "content_filter"}


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = True


class _Schema(msgspec.Struct, frozen=True):
    name: str
    schema: dict[str, Any]
    strict: bool


class _ResponseFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    json_schema: _Schema | None = None


class ChatRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of `POST /chat/completions`."""

    model: str
    messages: tuple[_Message, ...]
    stream: bool
    stream_options: _StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: _ResponseFormat | None = None


def to_wire(
    request: TextCompletionRequest, model: str, *, defaults: Sampling, completion_tokens: bool, strict: bool
) -> ChatRequest:
    """The body for a request.

    Args:
        request: what to answer.
        model: its name at the provider.
        defaults: for sampling fields that the request leaves open.
        completion_tokens: name the bound on the answer's length `max_completion_tokens`, as reasoning models need.
        strict: ask for answers that cannot break the schema.

    Raises:
        BadRequest: the request asks for what this API cannot do.
    """
    sampling = request.sampling or defaults
    if sampling.top_k is not None:
        raise BadRequest("sampling.top_k is not known to this provider; leave it out, or use top_p")
    limit = defaults.max_tokens if sampling.max_tokens is None else sampling.max_tokens
    return ChatRequest(
        model=model,
        messages=_messages(request),
        stream=True,
        stream_options=_StreamOptions(),
        temperature=defaults.temperature if sampling.temperature is None else sampling.temperature,
        top_p=sampling.top_p,
        max_tokens=None if completion_tokens else limit,
        max_completion_tokens=limit if completion_tokens else None,
        stop=sampling.stop or None,
        seed=sampling.seed,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logprobs=None if sampling.logprobs is None else True,
        top_logprobs=sampling.logprobs or None,
        response_format=_response_format(request, strict=strict),
    )


def _messages(request: TextCompletionRequest) -> tuple[_Message, ...]:
    prompt = _Message("user", request.prompt or "")
    return (_Message("system", request.system), prompt) if request.system else (prompt,)


def _response_format(request: TextCompletionRequest, *, strict: bool) -> _ResponseFormat | None:
    if request.schema is not None:
        return _ResponseFormat("json_schema", _Schema("answer", request.schema, strict))
    return _ResponseFormat("json_object") if request.response_format == "json" else None


class _TopLogprob(msgspec.Struct, frozen=True, gc=False):
    logprob: float


class _TokenLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float | None = None
    top_logprobs: tuple[_TopLogprob, ...] | None = None


class _Logprobs(msgspec.Struct, frozen=True):
    content: tuple[_TokenLogprob, ...] | None = None


class _Delta(msgspec.Struct, frozen=True, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None


_NO_DELTA = _Delta()


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    delta: _Delta | None = _NO_DELTA
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Usage(msgspec.Struct, frozen=True, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Fault(msgspec.Struct, frozen=True):
    code: str | int | None = None
    type: str | None = None


class ChatEvent(msgspec.Struct, frozen=True):
    """One event of a stream: a piece of an answer, its usage (with empty `choices`), or an error."""

    choices: tuple[_Choice, ...] | None = None
    model: str | None = None
    usage: _Usage | None = None
    error: _Fault | str | None = None


_decode = msgspec.json.Decoder(ChatEvent).decode


def error_code(body: bytes) -> str:
    """The word that an error's body has for its kind: its code or else its type; "" where it has none."""
    try:
        fault = _decode(body).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return str(fault.code or fault.type or "") if isinstance(fault, _Fault) else ""


class Answer:
    """One answer as it is read: events in, chunks out. Remembers the counts told so far, because ours are deltas."""

    def __init__(self) -> None:
        self._told = _Usage(0, 0)

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk for an event's data; None where the event has nothing to say, for instance the role's.

        Raises:
            ProtocolError: the data is not a chat completion's event.
            TgError: the provider reports an error in its stream.
        """
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ProtocolError("the provider sent an event that is not of a chat completion") from None
        choice = event.choices[0] if event.choices else None
        if choice is None or choice.index or choice.finish_reason or choice.logprobs or event.usage or event.error:
            return self._uncommon(event)
        delta = choice.delta
        if delta is None:
            return None
        if delta.content and not delta.reasoning_content and not delta.reasoning:
            return LlmChunk(delta.content, model=event.model)
        return _delta_chunk(delta, event.model)

    def _uncommon(self, event: ChatEvent) -> LlmChunk | None:
        if event.error is not None:
            fault = event.error if isinstance(event.error, _Fault) else _Fault()
            raise event_error(fault.code, fault.type)
        in_token, out_token = self._counted(event.usage)
        choice = next((choice for choice in event.choices or () if choice.index == 0), _Choice())
        if choice.finish_reason == "error":
            raise event_error(None, None)
        said = _delta_chunk(choice.delta or _NO_DELTA, event.model) or LlmChunk(model=event.model)
        chunk = msgspec.structs.replace(
            said,
            in_token=in_token,
            out_token=out_token,
            finish_reason=_FINISH.get(choice.finish_reason, "stop") if choice.finish_reason else None,
            tokens=_tokens(choice.logprobs),
        )
        return None if chunk == LlmChunk(model=event.model) else chunk

    def _counted(self, usage: _Usage | None) -> tuple[int | None, int | None]:
        """What the usage adds to the counts told before; some servers repeat the running counts in each event."""
        if usage is None:
            return None, None
        before, self._told = self._told, usage
        return _increase(before.prompt_tokens, usage.prompt_tokens), _increase(
            before.completion_tokens, usage.completion_tokens
        )


def _increase(before: int | None, now: int | None) -> int | None:
    return None if now is None else max(now - (before or 0), 0)


def _delta_chunk(delta: _Delta, model: str | None) -> LlmChunk | None:
    if delta.refusal:
        raise ContentFilter("the model refused to answer this request")
    reasoning = delta.reasoning_content or delta.reasoning
    if not delta.content and not reasoning:
        return None
    return LlmChunk(delta.content or "", model=model, reasoning=reasoning or None)


def _tokens(logprobs: _Logprobs | None) -> tuple[Token, ...]:
    if logprobs is None:
        return ()
    return tuple(
        Token(
            id=NO_ID,
            text=token.token,
            logprob=token.logprob,
            top=tuple((NO_ID, top.logprob) for top in token.top_logprobs or ()),
        )
        for token in logprobs.content or ()
    )
