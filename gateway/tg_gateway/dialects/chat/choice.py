"""Records of one of the `n` answers -> the deltas of a choice, or the whole choice."""

import uuid
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from tg_gateway.dialects.chat.body import CallSignature, ExtraContent
from tg_gateway.dialects.chat.logprobs import make_logprobs
from tg_gateway.dialects.chat.shapes import (
    CallDelta,
    ChunkChoice,
    Delta,
    FunctionDelta,
    ReasoningDelta,
    WholeCall,
    WholeChoice,
    WholeFunction,
    WholeMessage,
)
from tg_schema import FinishReason, TextCompletionResponse, ToolCallDelta
from tg_schema.conversation import whole_calls
from tg_schema.deltas import join_text
from tg_schema.pieces import MAX_EVENT_BYTES, cut_text

MAX_THINKING_CHARACTERS: Final = 2 * 1024 * 1024
"""Characters of one piece of thinking kept until its signature comes; a longer one is sent without its signature."""
_TYPE: Final = "reasoning.text"


class SignedThinking:
    """Keeps the thinking of one choice until it is signed: its provider must get both back unchanged in the next turn.

    OpenAI's API has no field for it. The form is OpenRouter's, which clients keep with the message.
    """

    __slots__ = ("_index", "_pieces", "_size")

    def __init__(self) -> None:
        self._index = 0
        self._drop()

    def add(self, text: str) -> None:
        """Take more of the thinking."""
        self._size += len(text)
        if self._size <= MAX_THINKING_CHARACTERS:
            self._pieces.append(text)
        else:
            # Thinking that is cut no longer fits its signature: its provider would refuse it.
            self._pieces.clear()

    def end(self) -> None:
        """The thinking is over, and was not signed."""
        if self._size:
            self._drop()

    def sign(self, signature: str) -> Iterator[ReasoningDelta]:
        """The signed thinking and its signature, in parts that each fit into one event."""
        if self._size <= MAX_THINKING_CHARACTERS:
            *parts, last = cut_text("".join(self._pieces), MAX_EVENT_BYTES) or [""]
            for part in parts:
                yield ReasoningDelta(self._index, _TYPE, part)
            yield ReasoningDelta(self._index, _TYPE, last, signature)
            self._index += 1
        self._drop()

    def _drop(self) -> None:
        self._pieces: list[str] = []
        self._size = 0


class StreamedChoice:
    """Makes the chunks of one choice; how its answer is split into records does not matter.

    Attributes:
        started: whether the role was sent.
        finished: whether the finish reason was sent.
    """

    __slots__ = ("_called", "_has_begun", "_in_text", "_index", "_thinking", "finished", "started")

    def __init__(self, index: int) -> None:
        self._index = index
        self._has_begun = False
        self._in_text = False
        self._called: dict[int, int] = {}
        self._thinking = SignedThinking()
        self.started = False
        self.finished = False

    def write(self, record: TextCompletionResponse) -> Iterator[ChunkChoice]:
        """The chunks of a record."""
        self._in_text = False
        thought = record.reasoning or None
        if thought:
            self._thinking.add(thought)
        if record.signature is not None:
            if thought:
                yield self._chunk(Delta(self._role(), thought))
                thought = None
            for detail in self._thinking.sign(record.signature):
                yield self._chunk(Delta(self._role(), reasoning_details=(detail,)))
        text = record.response or None
        calls = tuple(self._call(call) for call in record.tool_calls)
        logprobs = make_logprobs(record.tokens)
        if thought or text or calls or logprobs:
            yield ChunkChoice(self._index, Delta(self._role(), thought, (), text, calls), None, logprobs)
        if text or calls:
            self._has_begun = True
            self._thinking.end()
        if record.finish_reason is not None:
            yield from self.finish(record.finish_reason)

    def open(self) -> Iterator[ChunkChoice]:
        """The chunk with the role alone."""
        yield self._chunk(Delta(self._role()))

    def begin_text(self) -> None:
        """Note that the caller sent a text without this object."""
        if not self._in_text:
            self._has_begun = self._in_text = True
            self._thinking.end()

    def finish(self, reason: FinishReason | None) -> Iterator[ChunkChoice]:
        """The last chunk, once; an unknown `reason` is guessed."""
        if not self.finished:
            self.finished = True
            # An answer without a word still has a text: the SDKs would make it null.
            content = None if self._has_begun else ""
            yield ChunkChoice(self._index, Delta(self._role(), content=content), reason or _guess(self._called))

    def _chunk(self, delta: Delta) -> ChunkChoice:
        return ChunkChoice(self._index, delta, None)

    def _role(self) -> Literal["assistant"] | None:
        started, self.started = self.started, True
        return None if started else "assistant"

    def _call(self, call: ToolCallDelta) -> CallDelta:
        extra = _make_extra(call.signature)
        if call.index in self._called:
            function = FunctionDelta(None, call.arguments)
            return CallDelta(self._called[call.index], function=function, extra_content=extra)
        # The SDKs put a call at the place that is its index, so there must be no gap.
        index = self._called[call.index] = len(self._called)
        function = FunctionDelta(call.name or "", call.arguments)
        return CallDelta(index, call.id or _new_call_id(), "function", function, extra)


def make_choices(records: Sequence[TextCompletionResponse], n: int) -> tuple[WholeChoice, ...]:
    """The `n` choices of a whole answer, in order."""
    join = TextCompletionResponse.join  # interleaved answers are in many pieces up to here
    return tuple(_make_choice(index, join([each for each in records if each.index == index])) for index in range(n))


def _make_choice(index: int, records: Sequence[TextCompletionResponse]) -> WholeChoice:
    calls = whole_calls(call for record in records for call in record.tool_calls)
    text = join_text(record.response for record in records)
    message = WholeMessage(
        "assistant",
        text or (None if calls else ""),
        None,
        join_text(record.reasoning for record in records) or None,
        tuple(_make_details(records)),
        tuple(_make_call(call) for call in calls),
    )
    reason = next((record.finish_reason for record in reversed(records) if record.finish_reason), _guess(calls))
    return WholeChoice(index, message, reason, make_logprobs([token for record in records for token in record.tokens]))


def _make_details(records: Sequence[TextCompletionResponse]) -> Iterator[ReasoningDelta]:
    signed = [record for record in records if record.signature is not None]
    for index, record in enumerate(signed):
        yield ReasoningDelta(index, _TYPE, record.reasoning or "", record.signature)


def _make_call(call: ToolCallDelta) -> WholeCall:
    function = WholeFunction(call.name or "", call.arguments)
    return WholeCall(call.id or _new_call_id(), "function", function, _make_extra(call.signature))


def _make_extra(signature: str | None) -> ExtraContent | None:
    return None if signature is None else ExtraContent(CallSignature(signature))


def _new_call_id() -> str:
    return f"call_{uuid.uuid4().hex}"


def _guess(calls: object) -> FinishReason:
    return "tool_calls" if calls else "stop"
