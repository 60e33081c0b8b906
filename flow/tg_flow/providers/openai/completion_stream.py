"""Events of `/v1/completions` -> LlmChunks, as vLLM sends them, after its reference ("Completions API")."""

from collections.abc import Mapping
from itertools import zip_longest

import msgspec

from tg_base.llm import LlmChunk, UsageDeltas, event_error
from tg_flow.providers.openai.stream import FINISH_REASONS, Counts, Fault
from tg_schema import Token
from tg_schema.completion import NO_TOKEN_ID


class _Logprobs(msgspec.Struct, frozen=True):
    tokens: tuple[str, ...] = ()
    token_logprobs: tuple[float | None, ...] = ()
    top_logprobs: tuple[dict[str, float] | None, ...] | None = None


class _Ranked(msgspec.Struct, frozen=True):
    logprob: float
    decoded_token: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    index: int = 0
    text: str = ""
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    logprobs: _Logprobs | None = None
    token_ids: tuple[int, ...] | None = None
    prompt_logprobs: tuple[dict[int, _Ranked] | None, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None


class _Event(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...] | None = None
    model: str | None = None
    usage: Counts | None = None
    error: Fault | str | None = None


_decode = msgspec.json.Decoder(_Event).decode


class CompletionDecoder:
    """Decodes one answer: events in, chunks out.

    Args:
        alternatives: the requested alternatives per token. vLLM adds the chosen token if it is not among them.

    Attributes:
        done: whether the stream's end marker has arrived.
    """

    def __init__(self, alternatives: int) -> None:
        self.done = False
        self._alternatives = alternatives
        self._counts = UsageDeltas()

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk of an event's data; None for an event without content. Raises as `StreamDecoder.chunk`."""
        if data.startswith(b"[DONE]"):
            self.done = True
            return None
        event = _decode(data)
        if event.error is not None:
            fault = event.error if isinstance(event.error, Fault) else Fault()
            raise event_error(fault.code, fault.word, fault.message)
        choice = event.choices[0] if event.choices else _Choice()
        if choice.finish_reason == "error":
            raise event_error(None, None)
        reason = choice.finish_reason
        chunk = LlmChunk(
            choice.text,
            index=choice.index,
            model=event.model,
            finish_reason=None if reason is None else FINISH_REASONS.get(reason, "stop"),
            stopped_by=choice.stop_reason,
            tokens=self._tokens(choice),
        )
        return chunk if event.usage is None else chunk.with_usage(self._counts.add_totals(event.usage.totals))

    def _tokens(self, choice: _Choice) -> tuple[Token, ...]:
        logprobs = choice.logprobs
        if logprobs is None:
            return ()
        columns = zip_longest(
            logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs or (), choice.token_ids or ()
        )
        return tuple([self._token(*column) for column in columns])

    def _token(self, text: str | None, logprob: float | None, top: dict[str, float] | None, id_: int | None) -> Token:
        best = sorted((top or {}).items(), key=lambda item: -item[1])[: self._alternatives]
        return Token(
            id=NO_TOKEN_ID if id_ is None else id_,
            text=text or "",
            logprob=logprob,
            top=tuple([(NO_TOKEN_ID, value) for _, value in best]),
            top_texts=tuple([text for text, _ in best]),
        )


def read_prompt_tokens(body: bytes) -> tuple[tuple[int, ...], tuple[Mapping[int, _Ranked] | None, ...]]:
    """The ids of a prompt, and for each id the tokens that the server ranks there; for the first id None.

    Raises:
        msgspec.DecodeError: the answer has no ids, or not one ranking for each id.
    """
    choice = (_decode(body).choices or (_Choice(),))[0]
    ids, ranked = choice.prompt_token_ids or (), choice.prompt_logprobs or ()
    if len(ids) != len(ranked):
        raise msgspec.DecodeError("prompt_logprobs are not one for each token")
    if any(found is None or id_ not in found for id_, found in zip(ids[1:], ranked[1:], strict=True)):
        raise msgspec.DecodeError("prompt_logprobs are missing")
    return ids, ranked


def prompt_token(id_: int, ranked: Mapping[int, _Ranked] | None, alternatives: int) -> Token:
    """One token of a prompt, with its likeliest alternatives."""
    if ranked is None:
        return Token(id=id_, text="")
    best = sorted(ranked.items(), key=lambda item: -item[1].logprob)[:alternatives]
    own = ranked[id_]
    return Token(
        id=id_,
        text=own.decoded_token or "",
        logprob=own.logprob,
        top=tuple([(number, each.logprob) for number, each in best]),
        top_texts=tuple([each.decoded_token or "" for _, each in best]),
    )
