"""The fields of a model's answer besides its text, shared by a provider's chunk and a record on the bus."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, Final, Literal, Self, TypeVar

import msgspec

from tg_schema.conversation import ToolCallDelta, whole_calls
from tg_schema.deltas import Count, add_counts

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
"""Why an answer ended: by itself or at a stop string, at a limit of tokens, with calls, or by the provider's filter."""
LATER_WORDS: Final[Mapping[str, str]] = {"finish_reason": "stop"}
"""The finish reason that is read for an unknown word of a newer peer."""
NO_TOKEN_ID = -1
"""The id of a token whose provider sends no ids."""


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """One token.

    Attributes:
        id: its number in the model's vocabulary, or `NO_TOKEN_ID`.
        text: what is known of it as text; half a character is U+FFFD.
        logprob: its natural-log probability.
        top: (id, log-probability) of the alternatives, the most probable first.
        top_texts: the text of each of `top`; empty = unknown.
        raw_bytes: the token's exact bytes, if `text` cannot express them.
        special: whether it is a control token, which is no part of the text.
    """

    id: int
    text: str
    # Always on the wire, as in the first version; null included.
    logprob: float | None = msgspec.field(default_factory=type(None))
    # `tuple` itself would be a default that is left out.
    top: tuple[tuple[int, float], ...] = msgspec.field(default_factory=lambda: ())
    top_texts: tuple[str, ...] = ()
    raw_bytes: bytes | None = None
    special: bool = False

    @property
    def data(self) -> bytes:
        """The bytes that the token stands for."""
        return self.text.encode() if self.raw_bytes is None else self.raw_bytes


class Usage(msgspec.Struct, frozen=True):
    """Tokens of a request; None = unknown, 0 = counted as zero. On the wire its fields are those of `Completion`.

    Attributes:
        in_token: tokens of the prompt.
        out_token: tokens of the answer.
        cached_token: the part of `in_token` from the provider's cache.
        reasoning_token: the part of `out_token` spent on thinking.
        cache_write_token: the part of `in_token` that the provider wrote into its cache.
    """

    in_token: Count | None = None
    out_token: Count | None = None
    cached_token: Count | None = None
    reasoning_token: Count | None = None
    cache_write_token: Count | None = None

    @classmethod
    def total(cls, pieces: Iterable["Completion"]) -> Self:
        """The sum of the pieces' counts."""
        return cls(*map(add_counts, zip(*map(counts_of, pieces), strict=True)))

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*map(add_counts, zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)))


class Completion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of an answer. Each derived record declares the text under its own name.

    Within one piece the thinking comes first, then its signature, the text, and the tool calls.

    Attributes:
        model: the name of the model that answers.
        finish_reason: set once, at the end of the answer, and with several answers at the end of each.
        reasoning: new thinking text, if the provider separates it from the answer.
        tokens: ids and log-probabilities of the tokens in the new text, if requested and known.
        tool_calls: new pieces of the model's tool calls.
        in_token, out_token, cached_token, reasoning_token, cache_write_token: as in `Usage`; each piece has only what
            no earlier piece has counted.
        index: which of the request's `n` answers this belongs to.
        signature: ends a piece of thinking; opaque. Thinking that follows it is another piece.
        stopped_by: the stop string or the token id that ended the answer, if the provider says which.
        seed: the seed that was used, if the provider says which.
        prompt_tokens: the tokens of the prompt, if requested and known; before the first text of each answer.
    """

    later_words: ClassVar = LATER_WORDS
    # Ordered by frequency: msgspec encodes and decodes leading fields fastest, and this record is made for each chunk.
    model: str | None = None
    index: Count = 0
    reasoning: str | None = None
    tokens: tuple[Token, ...] = ()
    tool_calls: tuple[ToolCallDelta, ...] = ()
    finish_reason: FinishReason | None = None
    in_token: Count | None = None
    out_token: Count | None = None
    cached_token: Count | None = None
    reasoning_token: Count | None = None
    cache_write_token: Count | None = None
    signature: str | None = None
    stopped_by: str | int | None = None
    seed: int | None = None
    prompt_tokens: tuple[Token, ...] = ()

    @property
    def usage(self) -> Usage:
        """The counts of this piece."""
        return Usage(*counts_of(self))

    def with_usage(self, usage: Usage) -> Self:
        """The same piece, with these counts in place of its own."""
        return msgspec.structs.replace(self, **msgspec.structs.asdict(usage))


COUNTS: Final = Usage.__struct_fields__
"""The fields of a piece that are counts of tokens."""
counts_of: Final[Callable[[Completion], tuple[int | None, ...]]] = attrgetter(*COUNTS)
"""The counts of a piece. Comparing them with `UNCOUNTED` costs less than making a `Usage`: nearly no piece has
counts."""
UNCOUNTED: Final[tuple[int | None, ...]] = (None,) * len(COUNTS)

_BESIDES_TEXT: Final = tuple(name for name in Completion.__struct_fields__ if name not in {"model", "index"})

Joined = TypeVar("Joined", bound=Completion)


def group_completions(pieces: Sequence[Joined], text: Callable[[Joined], str | None]) -> list[list[Joined]]:
    """The pieces in groups that can become one piece each: of one answer, with one piece of thinking before the text.

    The pieces of several answers may alternate. Groups are in the order of their last pieces, so that the last piece
    of all is in the last group.

    Args:
        pieces: pieces of any number of answers, in the order of their arrival.
        text: the answer text of a piece.
    """
    indexes = {piece.index for piece in pieces}
    if len(indexes) < 2:
        return _group_answer(pieces, text)
    placed: list[tuple[int, list[Joined]]] = []
    for index in indexes:
        numbers = [number for number, piece in enumerate(pieces) if piece.index == index]
        taken = 0
        for group in _group_answer([pieces[number] for number in numbers], text):
            taken += len(group)
            placed.append((numbers[taken - 1], group))
    return [group for _, group in sorted(placed, key=lambda place: place[0])]


def _group_answer(pieces: Sequence[Joined], text: Callable[[Joined], str | None]) -> list[list[Joined]]:
    """The groups of one answer."""
    groups: list[list[Joined]] = []
    answered = signed = False
    for piece in pieces:
        thinks = bool(piece.reasoning or piece.signature)
        if not groups or (thinks and (answered or signed)):
            groups.append([])
            answered = signed = False
        groups[-1].append(piece)
        answered = answered or bool(piece.tool_calls or text(piece))
        signed = signed or bool(piece.signature)
    return groups


def join_completions(whole: Joined, pieces: Sequence[Completion]) -> Joined:
    """`whole`, which has the joined text, with the other fields of all pieces; the pieces are of one group.

    Counts are summed, thinking and tokens are concatenated, and the pieces of a call are merged. The last model and
    the last `finish_reason` that is set win.
    """
    model = next((piece.model for piece in reversed(pieces) if piece.model is not None), None)
    index = pieces[-1].index if pieces else 0
    # Nearly all pieces have nothing but text, and this runs for each message: they are looked at once, not field by
    # field.
    pieces = [piece for piece in pieces if piece.tokens or not _is_plain(piece)]
    return msgspec.structs.replace(whole, model=model, index=index, **_besides_text(pieces))


def _besides_text(pieces: Sequence[Completion]) -> dict[str, Any]:
    """The joined fields of pieces, besides text, model and index; only those that are set."""
    by_field: dict[str, list[Any]] = {}
    for piece in pieces:
        for name in _BESIDES_TEXT:
            value = getattr(piece, name)
            # None and () mean "not set"; 0 and "" are values.
            if value is not None and value != ():
                by_field.setdefault(name, []).append(value)
    return {name: _JOINS.get(name, itemgetter(-1))(values) for name, values in by_field.items()}


def _chain(values: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple([item for value in values for item in value])


_JOINS: Final[Mapping[str, Callable[[Sequence[Any]], Any]]] = {
    **dict.fromkeys(COUNTS, sum),
    "reasoning": "".join,
    "tokens": _chain,
    "prompt_tokens": _chain,
    "tool_calls": lambda values: whole_calls(_chain(values)),
}
"""How the values of a field are joined, for fields whose last value does not win."""


def _is_plain(piece: Completion) -> bool:
    """Whether the piece has nothing but text and its tokens."""
    return (
        counts_of(piece) == UNCOUNTED
        and piece.reasoning is None
        and piece.finish_reason is None
        and piece.signature is None
        and not piece.tool_calls
        and piece.stopped_by is None
        and piece.seed is None
        and not piece.prompt_tokens
    )
