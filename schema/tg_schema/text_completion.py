"""Text completion: one prompt in, one answer out, whole or in chunks."""

from collections.abc import Sequence
from typing import Annotated, Any, Self

import msgspec

from tg_schema.completion import Completion, join_completions
from tg_schema.conversation import Message, ModelInfo, Tool, ToolCallDelta
from tg_schema.deltas import join_text
from tg_schema.errors import Error
from tg_schema.features import Feature
from tg_schema.pieces import cut_list, cut_text, in_parts

Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sampling parameters; None = the provider's default.

    The ranges are the widest that any provider accepts; `decode` and `check_completion` enforce them. A provider may
    reject more.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | None = None
    """0, and -1 for some servers, = all tokens."""
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    stop: tuple[str, ...] = ()
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None
    """Alternatives to report for each token; 0 = only the chosen token; None = no token data."""


class TextCompletionRequest(msgspec.Struct, frozen=True):
    """A plain peer sends only `system`, `prompt` and `streaming`; the rest is optional."""

    system: str | None = None
    prompt: str | None = None
    streaming: bool | None = False
    model: str | None = None
    sampling: Sampling | None = None
    response_format: str | None = None
    """None or "json"."""
    schema: dict[str, Any] | None = None
    """JSON schema that the answer must satisfy."""
    messages: tuple[Message, ...] = ()
    """The previous turns. `system` comes before them and `prompt` after them, if they are set."""
    tools: tuple[Tool, ...] = ()
    tool_choice: str | None = None
    """"auto" (the default), "none", "required", or the name of the tool that must be called."""
    operation: str | None = None
    """"completion" (the default) or "list-models", as in TrustGraph."""

    @property
    def system_text(self) -> str:
        """`system` and the system turns, joined by blank lines; "" if there are none."""
        texts = [self.system or "", *(turn.text for turn in self.messages if turn.role == "system")]
        return "\n\n".join(text for text in texts if text)

    @property
    def turns(self) -> tuple[Message, ...]:
        """The conversation without its system texts; `prompt` is the last user turn."""
        turns = tuple(turn for turn in self.messages if turn.role != "system")
        return (*turns, Message("user", self.prompt)) if self.prompt else turns

    @property
    def features(self) -> frozenset[Feature]:
        """The features that a provider needs to answer this."""
        sampling = self.sampling or Sampling()
        turns = self.turns
        asked: dict[Feature, bool] = {
            "history": len(turns) > 1 or any(turn.role != "user" for turn in turns),
            "images": any(turn.images for turn in turns),
            "tools": bool(self.tools) or any(turn.role == "tool" or turn.tool_calls for turn in turns),
            "json": self.response_format == "json" and self.schema is None,
            "schema": self.schema is not None,
            "stop": bool(sampling.stop),
            "seed": sampling.seed is not None,
            "top_p": sampling.top_p is not None,
            "top_k": sampling.top_k is not None,
            "penalties": sampling.presence_penalty is not None or sampling.frequency_penalty is not None,
            "logprobs": sampling.logprobs is not None,
        }
        return frozenset(feature for feature, needed in asked.items() if needed)


class TextCompletionResponse(Completion, frozen=True):
    """A piece of an answer, or the list of models, or an error, which is the last record.

    Token counts are deltas: those of all records add up. A service reports the usage of a stream on its last record.
    """

    error: Error | None = None
    response: str | None = None
    end_of_stream: bool | None = False
    models: tuple[ModelInfo, ...] = ()
    """The answer to "list-models"."""

    @property
    def last(self) -> bool:
        """Whether the stream ends here."""
        return bool(self.end_of_stream) or self.error is not None

    @classmethod
    def from_error(cls, error: Error) -> Self:
        """The last record of a failed stream."""
        return cls(error=error, end_of_stream=True)

    @classmethod
    def join(cls, records: Sequence[Self]) -> Sequence[Self]:
        """One record with what all of them say; an error stays apart."""
        if len(records) < 2:
            return records
        final = records[-1]
        if final.error is not None:
            return (*cls.join(records[:-1]), final)
        text = join_text(record.response for record in records)
        whole = cls(response=text, end_of_stream=final.end_of_stream, models=final.models)
        return (join_completions(whole, records),)

    def cut(self, size: int) -> Sequence[Self]:
        """Pieces of the reasoning, then of the text, then tokens and tool calls."""
        if self.error is not None:
            return (self,)
        parts: list[dict[str, Any]] = [{"reasoning": piece} for piece in cut_text(self.reasoning, size)]
        parts += [{"response": piece} for piece in cut_text(self.response, size)]
        parts += [{"tokens": group} for group in cut_list(self.tokens, size)]
        parts += [{"tool_calls": (piece,)} for call in self.tool_calls for piece in _cut_call(call, size)]
        return in_parts(self, type(self)(), parts)


def _cut_call(call: ToolCallDelta, size: int) -> list[ToolCallDelta]:
    first, *others = cut_text(call.arguments, size) or [""]
    begun = ToolCallDelta(call.index, call.id, call.name, first)
    return [begun, *(ToolCallDelta(call.index, arguments=piece) for piece in others)]
