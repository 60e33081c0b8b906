"""Messages of a request -> turns of our records.

A turn of the user is split where results of tools stand in it. One of the assistant is split where signed thinking or
a foreign block follows a call: within our turn the calls come last, and Anthropic refuses thinking out of its order.
"""

from collections.abc import Iterable, Iterator

import msgspec

from tg_gateway.dialects.anthropic.blocks import Block, ToolResult, read_content, simplify
from tg_gateway.dialects.anthropic.body import Content, Turn
from tg_gateway.dialects.anthropic.signatures import is_of_call, unwrap_call_signatures
from tg_schema import Message, TextPart, ToolCall
from tg_schema.conversation import ForeignPart, Part, ReasoningPart, Role
from tg_schema.errors import BadRequest


def read_turns(turns: Iterable[Turn]) -> Iterator[Message]:
    """The conversation, in order.

    Raises:
        BadRequest: a block is wrong, or stands in a turn of the wrong role.
    """
    for number, turn in enumerate(turns):
        place = f"messages.{number}.content"
        match turn.role:
            case "system":
                yield from read_system(turn.content, place)
            case "assistant":
                yield from _read_assistant(read_content(turn.content, place), place)
            case "user":
                yield from _read_user(read_content(turn.content, place), place)


def read_system(content: Content, place: str) -> Iterator[Message]:
    """Instructions: a turn for each block, so that they stay apart where they are joined to one text.

    Raises:
        BadRequest: a block is no text.
    """
    for block in read_content(content, place):
        if not isinstance(block, TextPart):
            raise BadRequest(f"{place}: instructions are text")
        yield Message("system", simplify((block,)))


def _read_user(blocks: Iterable[Block], place: str) -> Iterator[Message]:
    parts: list[Part] = []
    for block in blocks:
        match block:
            case ToolResult():
                yield from _flush("user", parts, [])
                yield Message("tool", block.content, tool_call_id=block.call, error=block.error, cache=block.cache)
            case ToolCall():
                raise BadRequest(f"{place}: tool_use belongs to a message of the assistant")
            case ReasoningPart():
                raise BadRequest(f"{place}: thinking belongs to a message of the assistant")
            case _:
                parts.append(block)
    yield from _flush("user", parts, [])


def _read_assistant(blocks: list[Block], place: str) -> Iterator[Message]:
    # Before the calls are read: a signature may stand behind its call.
    signatures = unwrap_call_signatures(blocks)
    parts: list[Part] = []
    calls: list[ToolCall] = []
    for block in blocks:
        match block:
            case ToolResult():
                raise BadRequest(f"{place}: tool_result belongs to a message of the user")
            case ToolCall():
                calls.append(msgspec.structs.replace(block, signature=signatures.get(block.id)))
            # This block only carried a call's signature, or is empty: a provider would refuse empty thinking.
            case ReasoningPart() if is_of_call(block) or not (block.text or block.signature):
                pass
            case _:
                if calls and _is_in_order(block):
                    yield from _flush("assistant", parts, calls)
                parts.append(block)
    yield from _flush("assistant", parts, calls)


def _is_in_order(part: Part) -> bool:
    """Whether its place among the calls matters."""
    return isinstance(part, ForeignPart) or (isinstance(part, ReasoningPart) and part.signature is not None)


def _flush(role: Role, parts: list[Part], calls: list[ToolCall]) -> Iterator[Message]:
    if parts or calls:
        yield Message(role, simplify(tuple(parts)), tool_calls=tuple(calls))
        parts.clear()
        calls.clear()
