"""Events of TGI's `/generate_stream` -> LlmChunks; its non-streamed answers with tokens -> Tokens."""

import msgspec

from tg_base.llm import AnswerText, ErrorDetail, LlmChunk, event_error
from tg_schema import Sampling, Token


class _WireToken(msgspec.Struct, frozen=True, gc=False):
    id: int
    text: str
    logprob: float | None = None
    special: bool = False


class _Details(msgspec.Struct, frozen=True):
    finish_reason: str
    generated_tokens: int | None = None
    seed: int | None = None
    input_length: int | None = None


class _Event(msgspec.Struct, frozen=True):
    token: _WireToken | None = None
    top_tokens: tuple[_WireToken, ...] | None = None
    generated_text: str | None = None
    details: _Details | None = None
    error: str | None = None
    error_type: str | None = None


class _Prefill(msgspec.Struct, frozen=True):
    prefill: tuple[_WireToken, ...]


class _Scored(msgspec.Struct, frozen=True):
    details: _Prefill


class _Id(msgspec.Struct, frozen=True):
    id: int


class _ChatTokens(msgspec.Struct, frozen=True):
    tokenize_response: tuple[_Id, ...]


_decode = msgspec.json.Decoder(_Event).decode


class GenerationDecoder:
    """Decodes one answer: events in, chunks out.

    Args:
        sampling: the request's sampling; it says which token data are wanted. TGI leaves the stop string in the text;
            it is removed here unless `keep_stop` is set.

    Attributes:
        done: whether the answer has ended.
    """

    def __init__(self, sampling: Sampling) -> None:
        self.done = False
        self._sampling = sampling
        self._answer = AnswerText(sampling.stop, keep_stop=sampling.keep_stop)
        self._events = 0

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk of an event's data; None while its text is held back.

        Raises:
            TgError: the provider reports an error in its stream.
            Exception: as `EventDecoder`.
        """
        event = _decode(data)
        if event.error is not None:
            raise event_error(event.error_type, text=event.error)
        token, details = event.token, event.details
        if token is None:
            raise msgspec.ValidationError("the event has no token")
        self._events += 1
        at_end = token.special and details is not None and details.finish_reason == "eos_token"
        text, tokens, stopped = self._answer.feed(
            b"" if token.special else token.text.encode(), self._token(token, event.top_tokens or (), at_end=at_end)
        )
        if not stopped and details is None and event.generated_text is None:
            return LlmChunk(text, tokens=tokens) if text or tokens else None
        if not stopped:
            rest, more, stopped = self._answer.flush()
            text, tokens = text + rest, tokens + more
        return self._end(LlmChunk(text, tokens=tokens), event, at_end=at_end)

    def _token(self, token: _WireToken, top: tuple[_WireToken, ...], *, at_end: bool) -> Token | None:
        most = self._sampling.logprobs
        if most is None or (at_end and not self._sampling.end_token):
            return None
        best = sorted(top, key=lambda each: -(each.logprob or 0.0))[:most]
        return Token(
            id=token.id,
            text=token.text,
            logprob=token.logprob,
            top=tuple([(each.id, each.logprob or 0.0) for each in best]),
            top_texts=tuple([each.text for each in best]),
            special=token.special,
        )

    def _end(self, last: LlmChunk, event: _Event, *, at_end: bool) -> LlmChunk:
        self.done = True
        stopped_by = self._answer.stopped_by
        # A stop string within a token ends the answer here, although the server goes on, so there are no counts yet.
        details = event.details or _Details("stop_sequence" if stopped_by else "eos_token", self._events)
        if stopped_by is None and details.finish_reason == "stop_sequence" and event.token is not None:
            # A control token can be a stop string, although it is not in the text.
            stopped_by = event.token.text if event.token.text in self._sampling.stop else None
        made = details.generated_tokens
        return msgspec.structs.replace(
            last,
            finish_reason="length" if details.finish_reason == "length" and stopped_by is None else "stop",
            stopped_by=stopped_by,
            in_token=details.input_length,
            out_token=None if made is None else max(made - at_end, 0),
            seed=details.seed,
        )


def generation_error(body: bytes) -> ErrorDetail:
    """The type of an error in its body. Raises as `EventDecoder.chunk` if the body is another server's."""
    return ErrorDetail(_decode(body).error_type or "")


def read_prefill(body: bytes) -> tuple[Token, ...]:
    """The tokens of a prompt in an answer with `decoder_input_details`; the first one has no log-probability.

    Raises:
        msgspec.DecodeError: the answer has no such tokens.
    """
    tokens = msgspec.json.decode(body, type=_Scored).details.prefill
    if not tokens or any(token.logprob is None for token in tokens[1:]):
        raise msgspec.DecodeError("prefill is missing")
    first, *others = [Token(token.id, token.text, token.logprob, special=token.special) for token in tokens]
    return (msgspec.structs.replace(first, logprob=None), *others)


def read_ids(body: bytes) -> tuple[int, ...]:
    """The ids in the answer to `POST /tokenize`. Raises msgspec.DecodeError."""
    return tuple([token.id for token in msgspec.json.decode(body, type=tuple[_Id, ...])])


def read_chat_ids(body: bytes) -> tuple[int, ...]:
    """The ids in the answer to `POST /chat_tokenize`. Raises msgspec.DecodeError."""
    return tuple([token.id for token in msgspec.json.decode(body, type=_ChatTokens).tokenize_response])
