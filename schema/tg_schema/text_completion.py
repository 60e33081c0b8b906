"""Text completion: one prompt in, one answer out, whole or in chunks."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, Self, cast

import msgspec

from tg_schema.completion import Completion, Usage, group_completions, join_completions
from tg_schema.conversation import (
    ForeignPart,
    ImagePart,
    Message,
    ModelInfo,
    ReasoningPart,
    Tool,
    ToolCallDelta,
)
from tg_schema.deltas import join_text
from tg_schema.errors import Error
from tg_schema.features import Feature
from tg_schema.many import Many
from tg_schema.pieces import cut_list, cut_text, in_parts
from tg_schema.sampling import Sampling, TokenId
from tg_schema.stream_record import StreamRecord

SYSTEM_ROLES: Final = frozenset({"system", "developer"})
"""Turns whose text is an instruction, not a part of the dialogue."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model should think, as OpenAI and Anthropic name it."""
Operation = Literal[
    "completion", "list-models", "count-tokens", "tokenize", "detokenize", "score", "embed",
    "load-adapter", "unload-adapter",
]  # fmt: skip
Pooling = Literal["mean", "last"]
"""How the vectors of a text's tokens become its one vector."""
Purpose = Literal["query", "document"]


_TOKENS: Final = frozenset({"tokenize", "detokenize", "count-tokens"})
"""Operations that work on raw text or ids anyway: in them, `raw` and `prompt_ids` need no feature."""


class Reasoning(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much the model should think: by effort, by the most tokens it may think, or by both."""

    effort: Effort | None = None
    budget: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    """0 = do not think."""


class Foreign(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parts of a request that only one vendor's API knows, passed on unchanged to providers that announce it.

    Attributes:
        dialect: the wire format, such as "anthropic".
        fields: the request's further JSON fields.
        tools: tools of kinds that are no functions.
        betas: names of beta versions of the API.
    """

    dialect: str
    fields: dict[str, Any] = {}
    tools: tuple[dict[str, Any], ...] = ()
    betas: tuple[str, ...] = ()


class TextCompletionRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plain peer sends only `system`, `prompt` and `streaming`; the rest is optional, and written if it is set."""

    # Defaults by a factory are always written; stock readers need these three fields.
    system: str | None = msgspec.field(default_factory=type(None))
    prompt: str | None = msgspec.field(default_factory=type(None))
    streaming: bool | None = msgspec.field(default_factory=bool)
    model: str | None = None
    sampling: Sampling | None = None
    response_format: str | None = None
    """None or "json": the answer is a JSON object."""
    schema: dict[str, Any] | None = None
    """JSON schema that the answer must satisfy. It is checked whether or not the provider enforces it."""
    messages: Many[Message] = ()
    """The previous turns. `system` comes before them and `prompt` after them, if they are set."""
    tools: Many[Tool] = ()
    tool_choice: str | None = None
    """"auto" (the default), "none", "required", or the name of the tool that must be called."""
    operation: str | None = None
    """An `Operation`; None = "completion". "list-models" is TrustGraph's."""
    reasoning: Reasoning | None = None
    parallel_tool_calls: bool | None = None
    """False = at most one call in an answer."""
    allowed_tools: tuple[str, ...] = ()
    """Names of the tools that may be called; empty = all."""
    regex: str | None = None
    """A regular expression that the whole answer must match."""
    choice: tuple[str, ...] = ()
    """The answer must be one of these."""
    raw: bool = False
    """Whether `prompt` goes to the model unchanged, without a chat template."""
    prompt_ids: tuple[TokenId, ...] = ()
    """The prompt as token ids, in place of `prompt`."""
    scored: tuple[TokenId, ...] = ()
    """The tokens that "score" scores after the prompt."""
    suffix: str | None = None
    """The text after the answer: the model fills the gap before it."""
    echo: bool = False
    """Whether the answer begins with the prompt."""
    adapter: str | None = None
    """The LoRA adapter to answer with, to load or to unload."""
    user: str | None = None
    """The end user for whom the provider counts the request. A hint, like the next two."""
    priority: int | None = None
    """The request's priority in the provider's queue."""
    cache_key: str | None = None
    """Requests of the same key share a prefix that the provider may have cached."""
    texts: Many[str] = ()
    """The texts to embed or to tokenize."""
    foreign: Foreign | None = None
    id_lists: tuple[tuple[TokenId, ...], ...] = ()
    """The texts to embed, as token ids, in place of `texts`."""
    token_texts: bool = False
    """Whether the answer to "tokenize" and "detokenize" has each token with its text too, as `tokens`."""
    pooling: Pooling | None = None
    """How "embed" makes one vector of a text; None = the model's own way, or else "mean"."""
    dimensions: Annotated[int, msgspec.Meta(ge=1, le=2**20)] | None = None
    """Numbers in each vector of "embed", for models that can shorten theirs."""
    truncate: bool = False
    """Whether "embed" cuts off the end of a text that is longer than the model's context; otherwise the text is
    refused."""
    purpose: Purpose | None = None
    """The purpose of the vectors, for models that distinguish queries from documents. A hint."""
    max_prompt_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    """Tokens of a `raw` prompt, or of `prompt_ids`, that the model gets: the last ones, after its begin token."""
    sheddable: bool = False
    """Whether it may be refused while others need the servers; the requestor then waits and retries. A hint."""
    adapter_path: str | None = None
    """The file of "load-adapter", where its processor runs."""
    schema_name: str | None = None
    """The name of `schema`. A hint, like the next one, for providers that pass it to the model."""
    schema_description: str | None = None
    schema_strict: bool = False
    """Whether the provider should refuse a `schema` that it cannot enforce while the model writes."""
    continuation: tuple[str, ...] = ()
    """The texts of the answer that earlier attempts have sent; the model continues after them."""

    @property
    def system_text(self) -> str:
        """`system` and the system turns, joined by blank lines; "" if there are none."""
        if not self.messages:
            return self.system or ""
        texts = [self.system or "", *(turn.text for turn in self.messages if turn.role in SYSTEM_ROLES)]
        return "\n\n".join(text for text in texts if text)

    @property
    def turns(self) -> tuple[Message, ...]:
        """The conversation without its system texts; `prompt` is the last user turn."""
        turns = tuple([turn for turn in self.messages if turn.role not in SYSTEM_ROLES]) if self.messages else ()
        return (*turns, Message("user", self.prompt)) if self.prompt else turns

    def shorten(self) -> Self:
        """The same, with an instruction and one question as `system` and `prompt`, which plain peers know too."""
        match self.messages:
            case (Message("user", str() as prompt),):
                return msgspec.structs.replace(self, messages=(), prompt=prompt)
            case (Message("system", str() as system), Message("user", str() as prompt)):
                return msgspec.structs.replace(self, messages=(), system=system, prompt=prompt)
            case _:
                return self

    @property
    def answers(self) -> int:
        """The number of answers that it asks for."""
        return (self.sampling.n or 1) if self.sampling else 1

    @property
    def features(self) -> frozenset[Feature]:
        """The features that a provider needs to answer this."""
        return self.find_features()

    def find_features(self) -> frozenset[Feature]:
        """The same, for the specification of the service: a method stays the same when it is pickled."""
        # Each request passes here twice, and nearly all set few fields: a field that is not set costs a comparison.
        needed: set[str] = set()
        if _feature_values(self) != _UNSET:
            fields = zip(_FEATURE_FIELDS, _UNSET, strict=True)
            needed |= {name for name, unset in fields if getattr(self, name) != unset}
        if (self.raw or self.prompt_ids) and self.operation not in _TOKENS:
            needed |= {name for name, given in (("raw", self.raw), ("prompt_ids", self.prompt_ids)) if given}
        if self.id_lists:
            needed.add("embed_ids")
        if self.messages:
            needed |= _turn_features(self.messages, self.turns)
        if self.tools:
            needed |= {"tools", "strict_tools"} if any(tool.strict for tool in self.tools) else {"tools"}
        if self.response_format == "json" and self.schema is None:
            needed.add("json")
        if self.operation in _OPERATION_FEATURES:
            needed.add(_OPERATION_FEATURES[self.operation])
        if self.foreign is not None and self.foreign.tools:
            needed.add(f"{self.foreign.dialect}_fields")
        if self.sampling is not None:
            needed |= self.sampling.features
        return cast("frozenset[Feature]", frozenset(needed))


_FEATURE_FIELDS: Final = (
    "schema", "suffix", "echo", "adapter", "reasoning", "regex", "choice", "parallel_tool_calls",
    "allowed_tools", "token_texts", "pooling", "dimensions", "truncate", "max_prompt_tokens",
    "continuation",
)  # fmt: skip
"""Fields that need the feature of their name if they are set."""
_feature_values: Final = attrgetter(*_FEATURE_FIELDS)
_UNSET: Final = _feature_values(TextCompletionRequest())
_OPERATION_FEATURES: Final = {
    "count-tokens": "count_tokens",
    "tokenize": "tokenize",
    "detokenize": "detokenize",
    "score": "score",
    "embed": "embed",
    "load-adapter": "load_adapter",
    "unload-adapter": "load_adapter",
}


def _turn_features(messages: Sequence[Message], turns: Sequence[Message]) -> set[str]:
    """The features that the turns need; `turns` are the turns of the dialogue, with the prompt."""
    parts = [part for turn in messages if not isinstance(turn.content, str) for part in turn.content]
    asked = {
        "history": len(turns) > 1 or any(turn.role != "user" for turn in turns),
        "images": any(isinstance(part, ImagePart) for part in parts),
        "tools": any(turn.role == "tool" or turn.tool_calls for turn in turns),
        "developer": any(turn.role == "developer" for turn in messages),
        "reasoning_turns": any(isinstance(part, ReasoningPart) for part in parts),
    }
    dialects = {f"{part.dialect}_fields" for part in parts if isinstance(part, ForeignPart)}
    return {feature for feature, needed in asked.items() if needed} | dialects


class TextCompletionResponse(StreamRecord, Completion, frozen=True, omit_defaults=True):
    """A piece of an answer, or the result of another operation, or an error, which is the last record.

    Token counts are deltas: the sum over all records is the total. A service reports the usage of a stream on its last
    record.
    """

    # Always on the wire: a stock reader takes a missing nested record for an empty one, which is truthy.
    error: Error | None = msgspec.field(default_factory=type(None))
    response: str | None = None
    end_of_stream: bool | None = False
    models: tuple[ModelInfo, ...] = ()
    """The answer to "list-models"."""
    ids: tuple[int, ...] = ()
    """The answer to "tokenize". The other operations answer elsewhere: "count-tokens" in `in_token`, "detokenize" in
    `response`, and "score" in `tokens`, which are the scored ones."""
    vectors: tuple[tuple[float, ...], ...] = ()
    """The answer to "embed": one for each text. A long answer comes in several records, like any other."""
    continued_at: tuple[int, ...] = ()
    """On the last record: the characters of the answer after each of which another processor continued."""

    @classmethod
    def join_whole(cls, records: Sequence[Self]) -> Sequence[Self]:
        """One record for each answer and piece of thinking, with everything that its records say."""
        return tuple(cls._join(group) for group in group_completions(records, attrgetter("response")))

    @classmethod
    def summarize(cls, records: Sequence[Self]) -> Self:
        """A whole answer as one record: the text of the first of its answers, and the usage of all.

        If there are several pieces of thinking, it has only their text, since a signature belongs to a single piece.
        """
        lowest = min(record.index for record in records)
        first = [record for record in records if record.index == lowest]
        whole = cls._join(first)
        return msgspec.structs.replace(
            whole.with_usage(Usage.total(records)),
            signature=whole.signature if len(cls.join(first)) == 1 else None,
            end_of_stream=records[-1].end_of_stream,
            model=records[-1].model or whole.model,
        )

    @classmethod
    def arrange(cls, records: Sequence[Self]) -> Sequence[Self]:
        """A whole answer in one record for each answer and piece of thinking, answer by answer; the usage is last."""
        bare = [
            msgspec.structs.replace(record.with_usage(Usage()), end_of_stream=False)
            for record in sorted(records, key=lambda record: record.index)
        ]
        *parts, last = cls.join(bare)
        last = msgspec.structs.replace(last, end_of_stream=records[-1].end_of_stream)
        return (*parts, last.with_usage(Usage.total(records)))

    @classmethod
    def _join(cls, records: Sequence[Self]) -> Self:
        if len(records) == 1:
            return records[0]
        final = records[-1]
        text = join_text(record.response for record in records)
        whole = cls(
            response=text,
            end_of_stream=final.end_of_stream,
            models=final.models,
            ids=tuple(number for record in records for number in record.ids),
            vectors=tuple(vector for record in records for vector in record.vectors),
            continued_at=final.continued_at,
        )
        return join_completions(whole, records)

    def cut(self, size: int) -> Sequence[Self]:
        """The tokens of the prompt, then pieces of the reasoning, its signature, the text, tokens and tool calls."""
        if self.error is not None:
            return (self,)
        parts: list[dict[str, Any]] = [{"prompt_tokens": group} for group in cut_list(self.prompt_tokens, size)]
        parts += [{"reasoning": piece} for piece in cut_text(self.reasoning, size)]
        parts += [{"signature": self.signature}] if self.signature is not None else []
        parts += [{"response": piece} for piece in cut_text(self.response, size)]
        parts += [{"tokens": group} for group in cut_list(self.tokens, size)]
        parts += [{"tool_calls": (piece,)} for call in self.tool_calls for piece in _cut_call(call, size)]
        parts += [{"ids": group} for group in cut_list(self.ids, size)]
        parts += [{"vectors": group} for group in cut_list(self.vectors, size)]
        return in_parts(self, type(self)(index=self.index), parts)


def _cut_call(call: ToolCallDelta, size: int) -> list[ToolCallDelta]:
    first, *others = cut_text(call.arguments, size) or [""]
    begun = ToolCallDelta(call.index, call.id, call.name, first, call.signature)
    return [begun, *(ToolCallDelta(call.index, arguments=piece) for piece in others)]
