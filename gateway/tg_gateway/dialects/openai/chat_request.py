"""The body of a chat completion -> a request record: every parameter has its field there, or is refused."""

from typing import Any, Final

import msgspec

from tg_gateway.dialects import FoundModel
from tg_gateway.dialects.openai.chat_body import ChatBody, StructuredOutputs
from tg_gateway.dialects.openai.chat_ignored import PASSED_ON
from tg_gateway.dialects.openai.chat_messages import read_messages
from tg_gateway.dialects.openai.chat_tools import read_tool_choice, read_tools
from tg_gateway.dialects.openai.failures import InvalidParameter
from tg_schema import Message, Sampling, TextCompletionRequest
from tg_schema.errors import BadRequest
from tg_schema.features import describe_missing
from tg_schema.text_completion import Foreign, Reasoning

DIALECT: Final = "openai"
"""The name of this wire format in the records."""
_REFUSED: Final = {
    "audio": "answers are text; leave it out",
    "functions": "send them as tools",
    "function_call": "send it as tool_choice",
    "moderation": "answers are not moderated here; leave it out",
    "web_search_options": "models do not search here; leave it out",
}
_FORMATS: Final = frozenset({"text", "json_object", "json_schema"})


def read_request(body: ChatBody, found: FoundModel) -> TextCompletionRequest:
    """The request record of a body.

    Args:
        body: what the client sent.
        found: what its `model` means.

    Raises:
        BadRequest: a parameter is senseless, or asks for what cannot be answered; mostly InvalidParameter.
    """
    _check(body)
    tools = read_tools(body.tools or ())
    tool_choice, allowed = read_tool_choice(body.tool_choice, tools)
    form, schema = _read_format(body)
    outputs = body.structured_outputs or StructuredOutputs()
    foreign = {name: value for name in PASSED_ON if (value := getattr(body, name)) is not None}
    request = TextCompletionRequest(
        streaming=bool(body.stream),
        model=found.model,
        sampling=read_sampling(body),
        response_format=form,
        schema=schema,
        messages=read_messages(body.messages),
        tools=tools,
        tool_choice=tool_choice,
        reasoning=_read_reasoning(body, found),
        # True is every provider's default.
        parallel_tool_calls=False if body.parallel_tool_calls is False and tools else None,
        allowed_tools=allowed,
        regex=outputs.regex,
        choice=outputs.choice or (),
        adapter=found.adapter,
        user=body.user or body.safety_identifier,
        priority=body.priority,
        cache_key=body.prompt_cache_key,
        foreign=Foreign(DIALECT, foreign) if foreign else None,
    )
    return simplify(request, plain=found.route.plain)


def _check(body: ChatBody) -> None:
    for name, advice in _REFUSED.items():
        if getattr(body, name) is not None:
            raise InvalidParameter(f"{name} is not supported: {advice}", name, "unsupported_parameter")
    if body.modalities is not None and body.modalities != ("text",):
        raise InvalidParameter('modalities must be ["text"]', "modalities", "unsupported_value")
    if body.stream_options is not None and not body.stream:
        raise InvalidParameter("stream_options: send it with stream = true alone", "stream_options")
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidParameter("top_logprobs: send it with logprobs = true", "top_logprobs")
    if None not in (body.max_tokens, body.max_completion_tokens) and body.max_tokens != body.max_completion_tokens:
        raise InvalidParameter("max_tokens differs from max_completion_tokens; send the latter alone", "max_tokens")
    if (body.best_of or 128) < (body.n or 1):
        raise InvalidParameter("best_of must not be less than n", "best_of")


def read_sampling(body: ChatBody) -> Sampling | None:
    """How tokens are chosen; None if nothing is said about it.

    Raises:
        InvalidParameter: a stop string is empty.
    """
    stop = (body.stop,) if isinstance(body.stop, str) else body.stop or ()
    if "" in stop:
        raise InvalidParameter("stop: a stop string must not be empty", "stop")
    sampling = Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        stop=stop,
        seed=body.seed,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        n=body.n,
        best_of=body.best_of,
        min_p=body.min_p,
        typical_p=body.typical_p,
        repetition_penalty=body.repetition_penalty,
        length_penalty=body.length_penalty,
        logit_bias=body.logit_bias or None,
        min_tokens=body.min_tokens,
        ignore_eos=bool(body.ignore_eos),
        stop_ids=body.stop_token_ids or (),
        keep_stop=bool(body.include_stop_str_in_output),
    )
    return None if sampling == Sampling() else sampling


def _read_reasoning(body: ChatBody, found: FoundModel) -> Reasoning | None:
    """No thinking is what a model that does not reason has anyway."""
    effort = body.reasoning_effort
    if effort is None or (effort == "none" and "reasoning" not in found.features):
        return None
    return Reasoning(effort)


def _read_format(body: ChatBody) -> tuple[str | None, dict[str, Any] | None]:
    """The record's `response_format` and `schema`."""
    outputs, form = body.structured_outputs or StructuredOutputs(), body.response_format
    if outputs.grammar is not None or outputs.structural_tag is not None:
        sentence = "structured_outputs: send json, regex or choice"
        raise InvalidParameter(sentence, "structured_outputs", "unsupported_value")
    if form is None:
        return None, outputs.json
    if form.type not in _FORMATS:
        sentence = f"response_format.type must be one of {', '.join(sorted(_FORMATS))}"
        raise InvalidParameter(sentence, "response_format.type", "invalid_value")
    if form.type != "json_schema":
        return "json" if form.type == "json_object" else None, outputs.json
    schema = form.json_schema.schema if form.json_schema else None
    if outputs.json is not None:
        raise InvalidParameter("structured_outputs.json: response_format has a schema; send one", "structured_outputs")
    if schema is None:
        place = "response_format.json_schema.schema"
        raise InvalidParameter(f"{place} is missing", place, "missing_required_parameter")
    return None, schema


def simplify(request: TextCompletionRequest, *, plain: bool, field: str = "messages") -> TextCompletionRequest:
    """A single question as `system` and `prompt`: a plain peer reads nothing else.

    Raises:
        BadRequest: this is for a plain peer, and more than a question.
    """
    *instructions, question = request.messages
    if _is_text(question, "user") and all(_is_text(turn, "system") for turn in instructions):
        system = "\n\n".join(turn.text for turn in instructions) or None
        request = msgspec.structs.replace(request, system=system, prompt=question.text, messages=())
    elif plain:
        sentence = f"{field}: this model takes one question of the user, in text, after instructions of the system"
        raise InvalidParameter(sentence, field, "unsupported_value")
    if plain and request.features:
        raise BadRequest(describe_missing(request.features))
    return request


def _is_text(turn: Message, role: str) -> bool:
    return turn.role == role and bool(turn.text) and isinstance(turn.content, str) and turn.name is None
