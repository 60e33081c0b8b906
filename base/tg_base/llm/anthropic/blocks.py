"""Message -> content blocks of Anthropic's Messages: pure functions, after the public API reference."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from tg_base.llm import call_arguments, read_signature
from tg_schema import ImagePart, Message, TextCompletionRequest, TextPart
from tg_schema.conversation import CacheMark, ForeignPart, Part, ReasoningPart
from tg_schema.text_completion import SYSTEM_ROLES

DIALECT = "anthropic"
"""The dialect of the parts and fields that only this API knows."""

THINKING = "anthropic"
"""Origin of the signature of a block of thinking."""

REDACTED_THINKING = "anthropic-redacted"
"""Origin of a block of thinking that is encrypted as a whole; the signature's value is its `data`."""


CacheControl = dict[str, str] | None
"""Where a prefix ends that should be cached."""


class TextBlock(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="text"):
    """Text."""

    text: str
    cache_control: CacheControl = None


class ImageBlock(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="image"):
    """An image, by its data or its URL."""

    source: dict[str, str]
    cache_control: CacheControl = None


class ThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    """Thinking as the model wrote it; the API refuses a changed one."""

    thinking: str
    signature: str


class RedactedThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="redacted_thinking"):
    """Encrypted thinking."""

    data: str


class ToolUse(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_use"):
    """A call that the model made."""

    id: str
    name: str
    input: dict[str, Any]
    cache_control: CacheControl = None


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool_result"):
    """The result of a call."""

    tool_use_id: str
    content: tuple[TextBlock | ImageBlock | dict[str, Any], ...] = ()
    is_error: bool = False
    cache_control: CacheControl = None


Shown = TextBlock | ImageBlock | dict[str, Any]
Block = TextBlock | ImageBlock | ThinkingBlock | RedactedThinkingBlock | ToolUse | ToolResult | dict[str, Any]


class WireTurn(msgspec.Struct, frozen=True):
    """One message of the API."""

    role: str
    content: tuple[Block, ...]

    @property
    def thinks_first(self) -> bool:
        """Whether it begins with thinking."""
        return isinstance(self.content[0], ThinkingBlock | RedactedThinkingBlock)

    @property
    def results(self) -> bool:
        """Whether it has results of calls."""
        return any(isinstance(block, ToolResult) for block in self.content)


def lacks_thinking(turns: Sequence[WireTurn]) -> bool:
    """Whether the tool calls in progress began without thinking. This API requires thinking before tool calls."""
    asked = max((number for number, turn in enumerate(turns) if turn.role == "user" and not turn.results), default=-1)
    answer = next((turn for turn in turns[asked + 1 :] if turn.role == "assistant"), None)
    return answer is not None and not answer.thinks_first


def wire_turns(turns: Sequence[Message]) -> tuple[WireTurn, ...]:
    """Merge consecutive turns of one role: the API wants all results of an assistant's calls in the next turn.

    Raises:
        BadRequest: the arguments of a call are not a JSON object.
    """
    # A turn without blocks is dropped; the API refuses empty content.
    spoken = [(("assistant" if turn.role == "assistant" else "user"), tuple(_blocks(turn))) for turn in turns]
    return tuple(
        WireTurn(role, tuple(block for _, blocks in group for block in blocks))
        for role, group in groupby((turn for turn in spoken if turn[1]), key=lambda turn: turn[0])
    )


def system_blocks(request: TextCompletionRequest) -> str | tuple[TextBlock, ...]:
    """The system's text; with cache marks a block for each of its parts."""
    parts = [part for turn in request.messages if turn.role in SYSTEM_ROLES for part in turn.parts]
    texts = [part for part in parts if isinstance(part, TextPart) and part.text]
    if not any(part.cache for part in texts):
        return request.system_text
    own = (TextBlock(request.system),) if request.system else ()
    return (*own, *(TextBlock(part.text, cache_control(part.cache)) for part in texts))


def cache_control(mark: CacheMark | None) -> CacheControl:
    """The field of a block with this mark."""
    if mark is None:
        return None
    return {"type": "ephemeral"} if mark == "5m" else {"type": "ephemeral", "ttl": mark}


def _blocks(turn: Message) -> Iterator[Block]:
    if turn.role == "tool":
        mark = cache_control(turn.cache)
        yield ToolResult(turn.tool_call_id or "", tuple(_shown(turn.parts)), is_error=turn.error, cache_control=mark)
        return
    for part in turn.parts:
        if isinstance(part, ReasoningPart):
            yield from _thinking(part)
        else:
            yield from _shown((part,))
    for call in turn.tool_calls:
        yield ToolUse(call.id, call.name, call_arguments(call.arguments), cache_control(call.cache))


def _shown(parts: Iterable[Part]) -> Iterator[Shown]:
    for part in parts:
        match part:
            case TextPart(text, mark):
                yield TextBlock(text, cache_control(mark))
            case ImagePart():
                yield _image(part)
            case ForeignPart(dialect, value) if dialect == DIALECT:
                yield value
            case _:
                pass


def _image(part: ImagePart) -> ImageBlock:
    mark = cache_control(part.cache)
    if part.url:
        return ImageBlock({"type": "url", "url": part.url}, mark)
    return ImageBlock({"type": "base64", "media_type": part.media_type, "data": part.data or ""}, mark)


def _thinking(part: ReasoningPart) -> Iterator[ThinkingBlock | RedactedThinkingBlock]:
    """Thinking of another provider, or without a signature, is left out: the API would refuse it."""
    signature = read_signature(part.signature, THINKING)
    data = read_signature(part.signature, REDACTED_THINKING)
    if signature is not None:
        yield ThinkingBlock(part.text, signature)
    elif data is not None:
        yield RedactedThinkingBlock(data)
