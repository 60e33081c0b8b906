"""TextCompletionRequest -> the body of OpenAI's `POST /chat/completions`, after the public API reference."""

from typing import Any, Final, Literal

import msgspec

from tg_base.llm import find_chat_prefix, find_effort, read_signature, set_fields
from tg_schema import ImagePart, Message, Sampling, TextCompletionRequest, TextPart, Tool, ToolCall
from tg_schema.codec import decode_json
from tg_schema.conversation import ForeignPart, Part, ReasoningPart
from tg_schema.errors import BadRequest

DIALECT = "openai"
"""The dialect of content parts and fields that only this API has."""

GOOGLE = "gemini"
"""The origin in the signature of a call that Gemini made through this API."""

ThinkingField = Literal["reasoning_content", "reasoning", "reasoning_details", "extra_content"]
"""The field in which a server sends its thinking and wants it back. The last one is a field of calls, the others of an
assistant's message. All but the last are also origins of signatures."""


ContinuationField = Literal["continue_final_message", "prefix"]
"""The field that makes a server continue the last message: a field of the body, or of that message."""

WireMessage = dict[str, Any]
"""One message of the API."""


def wire_messages(
    request: TextCompletionRequest, *, developer: bool, thinking_field: ThinkingField | None
) -> tuple[WireMessage, ...]:
    """The conversation.

    Args:
        request: the request.
        developer: whether the server has the role "developer"; if not, its texts become a part of the system text.
        thinking_field: where the server wants earlier thinking back; other servers would refuse the field.

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
    # Nearly all turns have only text.
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
    """The field with an earlier turn's thinking; empty if there is none."""
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


def to_wire(
    request: TextCompletionRequest,
    model: str,
    sampling: Sampling,
    *,
    completion_tokens: bool,
    strict: bool,
    developer: bool = False,
    thinking_field: ThinkingField | None = None,
) -> dict[str, Any]:
    """The body for a request.

    Args:
        request: the request.
        model: the model's name at the provider.
        sampling: the request's, with the configuration's defaults.
        completion_tokens: send the answer's limit as `max_completion_tokens`, as reasoning models need.
        strict: enforce each schema while the model generates, even if the request does not ask for that.
        developer: whether the server has the role "developer".
        thinking_field: where the server wants earlier thinking back; None = nowhere.

    Raises:
        BadRequest: this API cannot express the request; the message says why.
    """
    messages = wire_messages(request, developer=developer, thinking_field=thinking_field)
    fields = _fields(request, sampling, completion_tokens=completion_tokens, strict=strict)
    return {"model": model, "messages": messages, **set_fields(**fields)}


def continue_chat(chat: dict[str, Any], request: TextCompletionRequest, field: ContinuationField) -> dict[str, Any]:
    """The body that asks for the rest of an answer, made from the body that asks for the whole answer.

    Raises:
        BadRequest: this API cannot express the text so far.
    """
    begun = {"role": "assistant", "content": find_chat_prefix(request)}
    if field == "prefix":
        return chat | {"messages": (*chat["messages"], {**begun, field: True})}
    return chat | {"messages": (*chat["messages"], begun), field: True, "add_generation_prompt": False}


def _fields(
    request: TextCompletionRequest, sampling: Sampling, *, completion_tokens: bool, strict: bool
) -> dict[str, Any]:
    """The other fields, with None and () for absent ones. From `top_k` on, their names are vLLM's."""
    limit = sampling.max_tokens
    return {
        # Non-streaming requests use a stream too, so that all have the same timeouts and can be cancelled.
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": tuple(_tool(tool) for tool in request.tools),
        "tool_choice": _tool_choice(request),
        # OpenAI refuses the field in a request without tools.
        "parallel_tool_calls": request.parallel_tool_calls if request.tools else None,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": None if completion_tokens else limit,
        "max_completion_tokens": limit if completion_tokens else None,
        "stop": tuple(sampling.stop),
        "seed": sampling.seed,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logprobs": None if sampling.logprobs is None else True,
        # With `logprobs` alone, the server sends the tokens without alternatives.
        "top_logprobs": sampling.logprobs or None,
        "response_format": _response_format(request, strict=strict),
        "n": sampling.n if (sampling.n or 1) > 1 else None,
        "logit_bias": sampling.logit_bias or None,
        "reasoning_effort": find_effort(request.reasoning),
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "length_penalty": sampling.length_penalty,
        "min_tokens": sampling.min_tokens or None,
        "ignore_eos": sampling.ignore_eos or None,
        "stop_token_ids": sampling.stop_ids,
        "include_stop_str_in_output": sampling.keep_stop or None,
        "structured_outputs": set_fields(regex=request.regex, choice=request.choice) or None,
    }


def _tool(tool: Tool) -> dict[str, Any]:
    more = set_fields(description=tool.description, strict=tool.strict or None)
    return {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters, **more}}


def _tool_choice(request: TextCompletionRequest) -> str | dict[str, Any] | None:
    choice = request.tool_choice or None
    if not request.tools:
        return None
    if request.allowed_tools and choice in {None, "auto", "required"}:
        allowed = {"mode": choice or "auto", "tools": [_name(name) for name in request.allowed_tools]}
        return {"type": "allowed_tools", "allowed_tools": allowed}
    return choice if choice is None or choice in {"auto", "none", "required"} else _name(choice)


def _name(tool: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool}}


def _response_format(request: TextCompletionRequest, *, strict: bool) -> dict[str, Any] | None:
    if request.schema is None:
        return {"type": "json_object"} if request.response_format == "json" else None
    strict = strict or request.schema_strict
    more = set_fields(description=request.schema_description, strict=strict or None)
    named = {"name": request.schema_name or "answer", "schema": request.schema, **more}
    return {"type": "json_schema", "json_schema": named}


OWN_FIELDS: Final = frozenset(
    ("model", "messages", *_fields(TextCompletionRequest(), Sampling(), completion_tokens=False, strict=False))
)
"""Names of the fields that our records have."""
