"""Message -> content blocks of Anthropic's Messages: pure functions, after the public API reference."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from tg_base.llm import call_arguments, read_signature, set_fields
from tg_schema import ImagePart, Message, TextCompletionRequest, TextPart
from tg_schema.conversation import CacheMark, ForeignPart, Part, ReasoningPart
from tg_schema.text_completion import SYSTEM_ROLES

DIALECT = "anthropic"
"""The dialect of the parts and fields that only this API knows."""

THINKING = "anthropic"
"""Origin of the signature of a block of thinking."""

REDACTED_THINKING = "anthropic-redacted"
"""Origin of a block of thinking that is encrypted as a whole; the signature's value is its `data`."""


Block = dict[str, Any]
"""A block of the API."""
WireTurn = dict[str, Any]
"""A message of the API: its `role`, and its blocks as `content`."""


def lacks_thinking(turns: Sequence[WireTurn]) -> bool:
    """Whether the tool calls in progress began without thinking. This API requires thinking before tool calls."""
    asked = max((number for number, turn in enumerate(turns) if _is_question(turn)), default=-1)
    answer = next((turn for turn in turns[asked + 1 :] if turn["role"] == "assistant"), None)
    return answer is not None and answer["content"][0].get("type") not in {"thinking", "redacted_thinking"}


def _is_question(turn: WireTurn) -> bool:
    return turn["role"] == "user" and all(block.get("type") != "tool_result" for block in turn["content"])


def wire_turns(turns: Sequence[Message]) -> tuple[WireTurn, ...]:
    """Merge consecutive turns of one role: the API wants all results of an assistant's calls in the next turn.

    Raises:
        BadRequest: the arguments of a call are not a JSON object.
    """
    # A turn without blocks is dropped; the API refuses empty content.
    spoken = [(("assistant" if turn.role == "assistant" else "user"), tuple(_blocks(turn))) for turn in turns]
    return tuple(
        {"role": role, "content": [block for _, blocks in group for block in blocks]}
        for role, group in groupby((turn for turn in spoken if turn[1]), key=lambda turn: turn[0])
    )


def system_blocks(request: TextCompletionRequest) -> str | tuple[Block, ...]:
    """The system's text; with cache marks a block for each of its parts."""
    parts = [part for turn in request.messages if turn.role in SYSTEM_ROLES for part in turn.parts]
    texts = [part for part in parts if isinstance(part, TextPart) and part.text]
    if not any(part.cache for part in texts):
        return request.system_text
    return (*([_text(request.system)] if request.system else ()), *(_text(part.text, part.cache) for part in texts))


def cache_control(mark: CacheMark | None) -> dict[str, Any]:
    """The `cache_control` field of the block at the end of a cached prefix."""
    if mark is None:
        return {}
    return {"cache_control": {"type": "ephemeral"} if mark == "5m" else {"type": "ephemeral", "ttl": mark}}


def _blocks(turn: Message) -> Iterator[Block]:
    if turn.role == "tool":
        more = set_fields(content=tuple(_shown(turn.parts)), is_error=turn.error or None)
        yield {"type": "tool_result", "tool_use_id": turn.tool_call_id or "", **more, **cache_control(turn.cache)}
        return
    for part in turn.parts:
        if isinstance(part, ReasoningPart):
            yield from _thinking(part)
        else:
            yield from _shown((part,))
    for call in turn.tool_calls:
        made = {"type": "tool_use", "id": call.id, "name": call.name, "input": call_arguments(call.arguments)}
        yield made | cache_control(call.cache)


def _shown(parts: Iterable[Part]) -> Iterator[Block]:
    for part in parts:
        match part:
            case TextPart(text, mark):
                yield _text(text, mark)
            case ImagePart():
                yield {"type": "image", "source": _source(part), **cache_control(part.cache)}
            case ForeignPart(dialect, value) if dialect == DIALECT:
                yield value
            case _:
                pass


def _text(text: str, mark: CacheMark | None = None) -> Block:
    return {"type": "text", "text": text, **cache_control(mark)}


def _source(part: ImagePart) -> dict[str, str]:
    if part.url:
        return {"type": "url", "url": part.url}
    return {"type": "base64", "media_type": part.media_type, "data": part.data or ""}


def _thinking(part: ReasoningPart) -> Iterator[Block]:
    """Thinking of another provider, or without a signature, is left out: the API would refuse it."""
    signature = read_signature(part.signature, THINKING)
    data = read_signature(part.signature, REDACTED_THINKING)
    if signature is not None:
        yield {"type": "thinking", "thinking": part.text, "signature": signature}
    elif data is not None:
        yield {"type": "redacted_thinking", "data": data}
