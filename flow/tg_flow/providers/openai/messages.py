"""Message -> messages of OpenAI's chat completions, after the public API reference."""

from typing import Any, Literal

import msgspec

from tg_base.llm import read_signature, set_fields
from tg_schema import ImagePart, Message, TextCompletionRequest, TextPart, ToolCall
from tg_schema.codec import decode_json
from tg_schema.conversation import ForeignPart, Part, ReasoningPart
from tg_schema.errors import BadRequest

DIALECT = "openai"
"""The dialect of the parts and fields that only this API knows."""

GOOGLE = "gemini"
"""Origin of the signature of a call that Gemini made behind this API."""

ThinkingField = Literal["reasoning_content", "reasoning", "reasoning_details", "extra_content"]
"""The field in which a server tells its thinking and wants it back, of an assistant's message or, for the last one, of
its calls. All but the last are origins of signatures."""


WireMessage = dict[str, Any]
"""One message of the API."""


def wire_messages(
    request: TextCompletionRequest, *, developer: bool, thinking_field: ThinkingField | None
) -> tuple[WireMessage, ...]:
    """The conversation.

    Args:
        request: the request.
        developer: whether the texts of that role keep it; else they are a part of the system's.
        thinking_field: where the server wants earlier thinking back; others would refuse the field.

    Raises:
        BadRequest: this API cannot express a part.
    """
    instructions = (
        [turn.text for turn in request.messages if turn.role == "developer" and turn.text] if developer else []
    )
    system = request.system_text if not instructions else _system_text(request)
    leading = [{"role": "system", "content": system}] if system else []
    leading += [{"role": "developer", "content": "\n\n".join(instructions)}] if instructions else []
    return (*leading, *[_message(turn, thinking_field) for turn in request.turns])


def _system_text(request: TextCompletionRequest) -> str:
    texts = [request.system or "", *(turn.text for turn in request.messages if turn.role == "system")]
    return "\n\n".join(text for text in texts if text)


def _message(turn: Message, thinking_field: ThinkingField | None) -> WireMessage:
    # Nearly all turns have text alone.
    if isinstance(turn.content, str) and turn.role == "user" and not turn.tool_calls:
        return {"role": "user", "content": turn.content}
    parts = (
        [] if isinstance(turn.content, str) else [part for part in turn.parts if not isinstance(part, ReasoningPart)]
    )
    if any(not isinstance(part, TextPart) for part in parts):
        if turn.role != "user":
            raise BadRequest(
                f"messages: this provider takes images from the user only, not in a turn of the {turn.role}"
            )
        return {"role": "user", "content": tuple(_part(part) for part in parts)}
    text = {} if turn.tool_calls and not turn.text else {"content": turn.text}
    more = set_fields(
        tool_calls=tuple(_call(call, signed=thinking_field == "extra_content") for call in turn.tool_calls),
        tool_call_id=turn.tool_call_id if turn.role == "tool" else None,
    )
    thinking = _thinking(turn, thinking_field) if thinking_field and turn.role == "assistant" else {}
    return {"role": turn.role, **text, **more, **thinking}


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, ImagePart):
        return {"image_url": {"url": part.url or f"data:{part.media_type};base64,{part.data}"}, "type": "image_url"}
    if isinstance(part, ForeignPart):
        return part.value
    return {"text": part.text, "type": "text"}


def _call(call: ToolCall, *, signed: bool) -> dict[str, Any]:
    signature = read_signature(call.signature, GOOGLE) if signed else None
    extra = None if signature is None else {"google": {"thought_signature": signature}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "function": function, "type": "function", **set_fields(extra_content=extra)}


def _thinking(turn: Message, field: ThinkingField) -> dict[str, Any]:
    """The field for an earlier turn's thinking; none if there is none."""
    parts = [part for part in turn.parts if isinstance(part, ReasoningPart)]
    signed = [(part, value) for part in parts if (value := read_signature(part.signature, field)) is not None]
    if not signed:
        return {}
    if field == "reasoning_details":
        return {field: tuple(item for _, value in signed for item in _items(value))}
    return {field: "".join(part.text for part, _ in signed)}


def _items(value: str) -> list[Any]:
    try:
        return decode_json(value, list[Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadRequest("messages: a signature of thinking has been changed; send it back as it came") from None
