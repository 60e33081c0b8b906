"""TextCompletionRequest -> the body of OpenAI's `POST /chat/completions`, after the public API reference."""

from typing import Any, Final

from tg_base.llm import find_effort, set_fields
from tg_flow.providers.openai.messages import ThinkingField, wire_messages
from tg_schema import Sampling, TextCompletionRequest, Tool


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
        model: its name at the provider.
        sampling: the request's, with the configuration's defaults.
        completion_tokens: send the answer's limit as `max_completion_tokens`, as reasoning models need.
        strict: enforce each schema while the model generates, also where the request does not ask for that.
        developer: whether the server has that role.
        thinking_field: where the server wants earlier thinking back; None = nowhere.

    Raises:
        BadRequest: this API cannot express the request; the message says why.
    """
    messages = wire_messages(request, developer=developer, thinking_field=thinking_field)
    fields = _fields(request, sampling, completion_tokens=completion_tokens, strict=strict)
    return {"model": model, "messages": messages, **set_fields(**fields)}


def _fields(
    request: TextCompletionRequest, sampling: Sampling, *, completion_tokens: bool, strict: bool
) -> dict[str, Any]:
    """The other fields, None and () among them; from `top_k` on, they are of compatible servers, by vLLM's names."""
    limit = sampling.max_tokens
    return {
        # Whole answers, too, are joined from a stream: so all have the same clocks and the same cancel.
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
        # `logprobs` alone asks for the tokens without alternatives.
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
"""The fields that our records have."""
