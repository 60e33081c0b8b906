"""Conversations: turns, images, tools and tool calls, in one shape for every provider."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec

from tg_schema.deltas import Count
from tg_schema.many import Many

MAX_CALL_INDEX = 4095
"""The highest index of a tool call in one answer."""

Role = Literal["system", "developer", "user", "assistant", "tool"]

CacheMark = Literal["5m", "1h"]
"""Everything of the request up to here should be cached by the provider, for that long. A hint: the answer is the same
without it."""


class TextPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="text"):
    """A piece of a message's text."""

    text: str
    cache: CacheMark | None = None


class ImagePart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="image", kw_only=True):
    """An image in a message: exactly one of `data` (base64) and `url`."""

    media_type: str = "image/png"
    data: str | None = None
    url: str | None = None
    cache: CacheMark | None = None


class ReasoningPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="reasoning"):
    """The model's thinking in an earlier turn of the assistant.

    `signature` is the provider's proof that the text is its own, as a `Completion` brought it. The provider of that
    signature gets the part back unchanged; other providers do not get it.
    """

    text: str = ""
    signature: str | None = None


class ForeignPart(msgspec.Struct, frozen=True, tag_field="type", tag="foreign"):
    """A part that only one vendor's API knows; `value` is its JSON in that API's format, such as "anthropic"."""

    dialect: str
    value: dict[str, Any]


Part = TextPart | ImagePart | ReasoningPart | ForeignPart


def make_content(parts: tuple[Part, ...]) -> str | tuple[Part, ...]:
    """The content of a message: text where the parts are one text without a cache mark, or none at all.

    Plain peers and some models take nothing but text.
    """
    match parts:
        case ():
            return ""
        case (TextPart(text, None),):
            return text
        case _:
            return parts


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call that the model made; `arguments` is JSON text, as the model wrote it.

    `signature` is the provider's, as the call's `ToolCallDelta` brought it.
    """

    id: str
    name: str
    arguments: str = "{}"
    signature: str | None = None
    cache: CacheMark | None = None


class ToolCallDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of a call while the model writes it: `id` and `name` on the first piece, `arguments` concatenated.

    `index` identifies the call within the answer. `signature` must come back with the call in the next request.
    """

    index: Annotated[int, msgspec.Meta(ge=0, le=MAX_CALL_INDEX)] = 0
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    signature: str | None = None


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn.

    Attributes:
        role: the speaker. A "tool" message is the result of the call `tool_call_id`; `error` says that the tool failed.
            A "developer" message is a system message for the providers that do not distinguish the two.
        content: text, or parts.
        tool_calls: the calls that the assistant made in this turn.
        cache: a cache mark on the whole of a tool's result.
    """

    role: Role
    content: str | Many[Part] = ""
    tool_calls: Many[ToolCall] = ()
    tool_call_id: str | None = None
    name: str | None = None
    error: bool = False
    cache: CacheMark | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content as parts; empty if there is no content."""
        if isinstance(self.content, str):
            return (TextPart(self.content),) if self.content else ()
        return tuple(self.content)

    @property
    def content_parts(self) -> tuple[TextPart | ImagePart, ...]:
        """The parts that every provider accepts: text and images."""
        return tuple(part for part in self.parts if isinstance(part, TextPart | ImagePart))

    @property
    def text(self) -> str:
        """The content's text alone."""
        # Nearly all turns are texts, and a request passes each of them several times.
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The content's images alone."""
        if isinstance(self.content, str):
            return ()
        return tuple(part for part in self.content if isinstance(part, ImagePart))


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that the model may call; `parameters` is the JSON schema of its arguments.

    With `strict`, every call of it must satisfy the schema.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False
    cache: CacheMark | None = None


class ModelInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model of a provider's list.

    Attributes:
        id: its name.
        owned_by: who offers it.
        created: seconds since 1970; 0 = unknown, as in the next three.
        context_length: tokens of prompt and answer together.
        vocabulary: the number of its tokens, whose ids are 0 to one less.
        dimensions: numbers in each of its vectors.
        end_ids: the tokens that end an answer; empty = unknown.
    """

    id: str
    owned_by: str = ""
    created: Count = 0
    context_length: Count = 0
    vocabulary: Count = 0
    dimensions: Count = 0
    end_ids: tuple[int, ...] = ()


def whole_calls(deltas: Iterable[ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    """The pieces of each call as one, in order of `index`."""
    calls: dict[int, list[ToolCallDelta]] = {}
    for delta in deltas:
        calls.setdefault(delta.index, []).append(delta)
    return tuple(_whole(calls[index]) for index in sorted(calls))


def _whole(pieces: list[ToolCallDelta]) -> ToolCallDelta:
    if len(pieces) == 1:
        return pieces[0]
    call_id = next((piece.id for piece in pieces if piece.id), None)
    name = next((piece.name for piece in pieces if piece.name), None)
    signature = next((piece.signature for piece in pieces if piece.signature), None)
    return ToolCallDelta(pieces[0].index, call_id, name, "".join(piece.arguments for piece in pieces), signature)
