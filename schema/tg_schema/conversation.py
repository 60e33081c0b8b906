"""Conversations: turns, images, tools and tool calls, in one shape for every provider (additions to the seed)."""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]


class TextPart(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A piece of a message's text."""

    text: str


class ImagePart(msgspec.Struct, frozen=True, tag_field="type", tag="image", kw_only=True):
    """A picture in a message: exactly one of `data` (base64) and `url`."""

    media_type: str = "image/png"
    data: str | None = None
    url: str | None = None


Part = TextPart | ImagePart


class ToolCall(msgspec.Struct, frozen=True):
    """One call that the model asked for; `arguments` is JSON text, as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"


class ToolCallDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of a call while the model writes it: `id` and `name` on the first piece, `arguments` concatenated.

    `index` tells the calls of one answer apart.
    """

    index: int = 0
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn.

    Attributes:
        role: who speaks. A "tool" message answers the call `tool_call_id`; `error` says that the tool failed.
        content: text, or parts.
        tool_calls: what an assistant asked for in this turn.
    """

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    error: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content as parts; none where there is no content."""
        if isinstance(self.content, str):
            return (TextPart(self.content),) if self.content else ()
        return self.content

    @property
    def text(self) -> str:
        """The content's text alone."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The content's pictures alone."""
        return tuple(part for part in self.parts if isinstance(part, ImagePart))


def _no_arguments() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


class Tool(msgspec.Struct, frozen=True):
    """Something that the model may call; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=_no_arguments)


class ModelInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model of a provider's list (the predecessor's `list-models`); `created` in seconds since 1970."""

    id: str
    owned_by: str = ""
    created: int = 0


def whole_calls(deltas: Iterable[ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    """The pieces of each call as one, in order of `index`."""
    calls: dict[int, ToolCallDelta] = {}
    for delta in deltas:
        before = calls.get(delta.index)
        calls[delta.index] = delta if before is None else _continued(before, delta)
    return tuple(calls[index] for index in sorted(calls))


def _continued(call: ToolCallDelta, delta: ToolCallDelta) -> ToolCallDelta:
    arguments = call.arguments + delta.arguments
    return ToolCallDelta(call.index, call.id or delta.id, call.name or delta.name, arguments)
