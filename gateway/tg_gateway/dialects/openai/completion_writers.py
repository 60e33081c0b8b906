"""Records of the answers to one or several prompts -> chunks of a completion, or the whole of it."""

import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import is_text_alone
from tg_gateway.dialects.chat import (
    OPENAI_STYLE,
    AnswerStyle,
    ChatEnding,
    ChunkWriter,
    CompletionUsage,
    NamedAnswer,
    TextInput,
    describe_usage,
    too_many,
)
from tg_gateway.dialects.openai.completion_logprobs import CompletionLogprobs, TokenTable, Utf8Decoder
from tg_schema import FinishReason, TextCompletionResponse, Usage, encode
from tg_schema.deltas import join_text

TEXT_COMPLETION: Final = "text_completion"
"""The `object` of chunks and bodies alike."""


class CompletionChoice(msgspec.Struct, frozen=True):
    """An answer, or a piece of it; the SDKs require every field."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: ChatEnding | None


class TextCompletion(NamedAnswer, frozen=True):
    """The body of a whole answer."""

    choices: tuple[CompletionChoice, ...]
    usage: CompletionUsage | None = None


class ScoredPrompts:
    """The prompts of one request.

    A text prompt comes whole in the first record; token ids come as text record by record.

    Args:
        prompts: the prompts that the records' `index` counts.
    """

    def __init__(self, prompts: Sequence[TextInput]) -> None:
        self._texts = {index: prompt for index, prompt in enumerate(prompts) if isinstance(prompt, str)}
        self._decoders = {
            index: Utf8Decoder("replace") for index, prompt in enumerate(prompts) if isinstance(prompt, tuple)
        }

    def add_text(self, record: TextCompletionResponse) -> TextCompletionResponse:
        """The record with its piece of the text."""
        decoder = self._decoders.get(record.index)
        if decoder is None:
            return msgspec.structs.replace(record, response=self._texts.pop(record.index, ""))
        shown = b"".join(token.data for token in record.prompt_tokens if not token.special)
        return msgspec.structs.replace(record, response=decoder.decode(shown))


_TEXT_CHUNK = b'%b{"index":%d,"text":%b,"logprobs":null,"finish_reason":null}%b'
"""A `CompletionChoice` with nothing but text, as `encode` would write it."""


class CompletionStreamWriter(ChunkWriter):
    """The chunks of a completion.

    Args:
        model: the model's name in chunks until a record names the model that answers.
        answers: the number of choices: prompts times `n`.
        include_usage: as `ChunkWriter`.
        scored: the prompts, if they are scored and nothing is generated.
        style: whose clients they are for.
        name: the id in every chunk; None = a new one.
    """

    def __init__(
        self,
        model: str,
        answers: int = 1,
        *,
        include_usage: bool = False,
        scored: Sequence[TextInput] = (),
        style: AnswerStyle = OPENAI_STYLE,
        name: str | None = None,
    ) -> None:
        before = b'data: {"id":%b,"object":%b,"created":%d,"model":' % (
            encode(name or _new_id()),
            encode(TEXT_COMPLETION),
            time.time(),
        )
        super().__init__(before, model, b',"choices":[', style, include_usage=include_usage)
        self._scored = ScoredPrompts(scored) if scored else None
        self._last_reason = _guess(scored)
        self._choices = [_StreamedChoice(index) for index in range(answers)]

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        if record.index >= len(self._choices):
            raise too_many()
        if record.model and not self._is_named:
            self._name(record.model)
        # Nearly every record: its bytes are put together without an object for them.
        if is_text_alone(record) and not record.prompt_tokens:
            return _TEXT_CHUNK % (self._head, record.index, encode(record.response), self._tail)
        self._tally.add(record)
        if self._scored is not None:
            record = self._scored.add_text(record)
        return b"".join(map(self._frame, self._choices[record.index].write(record)))

    @override
    def finish(self) -> Iterable[bytes]:
        return [self._frame(chunk) for choice in self._choices for chunk in choice.finish(self._last_reason)]

    def _frame(self, chunk: CompletionChoice) -> bytes:
        return b"%b%b%b" % (self._head, encode(chunk), self._tail)


def encode_completion(
    records: Sequence[TextCompletionResponse],
    model: str,
    answers: int = 1,
    *,
    scored: Sequence[TextInput] = (),
    name: str | None = None,
) -> bytes:
    """The whole answer in one body.

    Args:
        records: all records of the answers.
        model: the model's name unless a record names the model that answered.
        answers: the number of choices: prompts times `n`.
        scored: the prompts, if they are scored and nothing is generated.
        name: the id of the answer; None = a new one.
    """
    prompts = ScoredPrompts(scored) if scored else None
    pieces: list[list[TextCompletionResponse]] = [[] for _ in range(answers)]
    for record in records:
        if record.index >= answers:
            raise too_many()
        pieces[record.index].append(record if prompts is None else prompts.add_text(record))
    model = records[0].model or model
    choices = tuple(_make_choice(index, piece, _guess(scored)) for index, piece in enumerate(pieces))
    usage = describe_usage(Usage.total(records))
    return encode(TextCompletion(name or _new_id(), TEXT_COMPLETION, int(time.time()), model, choices, usage))


class _StreamedChoice:
    """Makes the chunks of one choice; how its answer is split into records does not matter."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._table = TokenTable()
        self._finished = False

    def write(self, record: TextCompletionResponse) -> Iterator[CompletionChoice]:
        """The chunks of a record."""
        text = record.response or ""
        logprobs = self._table.read(record.prompt_tokens, record.tokens)
        if text or logprobs:
            yield CompletionChoice(self._index, text, logprobs, None)
        if record.finish_reason is not None:
            yield from self.finish(record.finish_reason)

    def finish(self, reason: FinishReason) -> Iterator[CompletionChoice]:
        """The last chunk, once."""
        if not self._finished:
            self._finished = True
            yield CompletionChoice(self._index, "", None, reason)


def _make_choice(index: int, records: Sequence[TextCompletionResponse], last_reason: FinishReason) -> CompletionChoice:
    prompt = [token for record in records for token in record.prompt_tokens]
    logprobs = TokenTable().read(prompt, [token for record in records for token in record.tokens])
    reason = next((record.finish_reason for record in reversed(records) if record.finish_reason), last_reason)
    return CompletionChoice(index, join_text(record.response for record in records) or "", logprobs, reason)


def _guess(scored: Sequence[TextInput]) -> FinishReason:
    """A `finish_reason` that the provider did not give; after a scored prompt no token may come."""
    return "length" if scored else "stop"


def _new_id() -> str:
    return f"cmpl-{uuid.uuid4().hex}"
