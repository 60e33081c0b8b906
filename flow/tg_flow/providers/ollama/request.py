"""TextCompletionRequest -> Ollama's `POST /api/chat`, after its public reference ("Generate a chat message")."""

from collections.abc import Iterable
from typing import Any

from tg_base.llm import call_arguments, find_effort, read_signature, set_fields
from tg_schema import ImagePart, Message, Sampling, TextCompletionRequest, Tool
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Effort, Reasoning

ORIGIN = "ollama"
"""The origin in signatures of Ollama's thinking. Such a signature has no value."""

_LEVELS: dict[Effort, str] = {"minimal": "low", "low": "low", "medium": "medium"}
"""All other efforts are sent as "high"."""


def to_wire(
    request: TextCompletionRequest,
    model: str,
    sampling: Sampling,
    *,
    think: bool | str | None = None,
    num_ctx: int | None = None,
    keep_alive: str | None = None,
    levels: bool = False,
) -> dict[str, Any]:
    """The body for a request.

    Raises:
        BadRequest: this API cannot express the request; the message says why.
    """
    if request.tool_choice not in {None, "", "auto", "none"}:
        raise BadRequest('this provider cannot make its model call a tool; tool_choice may be "auto" or "none"')
    return set_fields(
        model=model,
        messages=[*_messages(request)],
        stream=True,
        tools=() if request.tool_choice == "none" else tuple(_tool(tool) for tool in request.tools),
        format=request.schema or ("json" if request.response_format == "json" else None),
        options=set_fields(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            num_predict=sampling.max_tokens,
            stop=tuple(sampling.stop),
            seed=sampling.seed,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            num_ctx=num_ctx,
            min_p=sampling.min_p,
            typical_p=sampling.typical_p,
            repeat_penalty=sampling.repetition_penalty,
        ),
        think=think if request.reasoning is None else _think(request.reasoning, levels=levels),
        keep_alive=keep_alive,
        logprobs=None if sampling.logprobs is None else True,
        top_logprobs=sampling.logprobs or None,
    )


def _messages(request: TextCompletionRequest) -> Iterable[dict[str, Any]]:
    if request.system_text:
        yield {"role": "system", "content": request.system_text}
    # Ollama matches a tool's result to its call by the tool's name, not by an id.
    names = {call.id: call.name for turn in request.turns for call in turn.tool_calls}
    for turn in request.turns:
        more = set_fields(
            thinking=_thinking(turn),
            images=tuple(_image(image) for image in turn.images),
            tool_calls=tuple(
                {"function": {"name": call.name, "arguments": call_arguments(call.arguments)}}
                for call in turn.tool_calls
            ),
            tool_name=(turn.name or names.get(turn.tool_call_id or "")) if turn.role == "tool" else None,
        )
        yield {"role": turn.role, "content": turn.text, **more}


def _thinking(turn: Message) -> str | None:
    """Earlier thinking of the model, which the server wants back together with calls. It has no proof of it."""
    thinking = [part for part in turn.parts if isinstance(part, ReasoningPart)]
    return "".join(part.text for part in thinking if read_signature(part.signature, ORIGIN) is not None) or None


def _think(reasoning: Reasoning, *, levels: bool) -> bool | str | None:
    effort = find_effort(reasoning)
    if effort is None or effort == "none" or not levels:
        return None if effort is None else effort != "none"
    return _LEVELS.get(effort, "high")


def _image(image: ImagePart) -> str:
    if image.data is None:
        raise BadRequest("this provider takes no image by its URL; send the image itself, as base64 in `data`")
    return image.data


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
