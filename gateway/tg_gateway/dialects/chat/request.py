"""The body of a chat completion -> a request record: every parameter has its field there, or is refused or listed."""

from collections.abc import Iterator
from typing import Final

import msgspec

from tg_gateway.dialects import Call, Catalogue, FoundModel, InvalidParameter, list_unknown
from tg_gateway.dialects.chat.body import ChatBody, ChatMessage, ImageUrl
from tg_gateway.dialects.chat.failures import refuse_unsupported
from tg_gateway.dialects.chat.messages import read_messages, read_tool_choice, read_tools
from tg_gateway.dialects.chat.sampling import read_form, read_sampling
from tg_schema import Message, TextCompletionRequest
from tg_schema.errors import NotFound
from tg_schema.text_completion import Effort, Foreign, Reasoning

PLACEHOLDERS: Final = frozenset({"tgi", "dummy"})
"""What TGI's clients (`text-generation`, `huggingface_hub`) send as the model of a chat, since their server has one.

Each of these names stands for the default flow's model, unless a model has that name.
"""


def find_asked_model(call: Call, model: str | None, *, required: bool = True) -> FoundModel:
    """The model that a body's `model` means; from here on the log names its flow.

    Args:
        call: the request.
        model: the body's `model`.
        required: whether it must name one; otherwise it is the default flow's.

    Raises:
        InvalidParameter: the body names none.
        NotFound: there is no such model.
    """
    if required and not model:
        raise InvalidParameter("model is missing: name one of GET /v1/models", "model", "missing_required_parameter")
    found = _find(call.catalogue, model)
    call.route = found.route
    return found


def _find(catalogue: Catalogue, model: str | None) -> FoundModel:
    try:
        return catalogue.find_model(model)
    except NotFound:
        if model in PLACEHOLDERS:
            return catalogue.find_model(None)
        raise


PASSED_ON: Final = ("verbosity", "prediction", "prompt_cache_retention", "prompt_cache_options")
"""Fields that only OpenAI's API knows."""
_WITHOUT_EFFECT: Final = ("metadata", "service_tier", "store")


def list_ignored(data: bytes, body: ChatBody, found: FoundModel) -> Iterator[str]:
    """The names of the fields that are ignored.

    Args:
        data: the JSON of `body`.
        body: the body.
        found: the model that its `model` means.
    """
    yield from list_unknown(data, ChatBody)
    names = _WITHOUT_EFFECT if "openai_fields" in found.features else (*_WITHOUT_EFFECT, *PASSED_ON)
    yield from (name for name in names if getattr(body, name) is not None)
    if any(_has_detail(message) for message in body.messages):
        yield "messages.image_url.detail"


def _has_detail(message: ChatMessage) -> bool:
    """Whether the message says how closely to look at an image; "auto" says nothing."""
    parts = () if message.content is None or isinstance(message.content, str) else message.content
    return any(isinstance(part.image_url, ImageUrl) and part.image_url.detail not in {None, "auto"} for part in parts)


DIALECT: Final = "openai"
"""The name of this wire format in the records."""
_REFUSED: Final = {
    "audio": "answers are text; leave it out",
    "functions": "send them as tools",
    "function_call": "send it as tool_choice",
    "moderation": "answers are not moderated here; leave it out",
    "web_search_options": "models do not search here; leave it out",
}


def read_request(body: ChatBody, found: FoundModel) -> TextCompletionRequest:
    """The request record of a body.

    Args:
        body: the client's body.
        found: the model that its `model` means.

    Raises:
        BadRequest: a parameter is senseless, or asks for what cannot be answered; mostly InvalidParameter.
    """
    _check(body)
    tools = read_tools(body.tools or ())
    tool_choice, allowed = read_tool_choice(body.tool_choice, tools)
    foreign = {name: value for name in PASSED_ON if (value := getattr(body, name)) is not None}
    request = TextCompletionRequest(
        streaming=bool(body.stream),
        model=found.model,
        sampling=read_sampling(
            body,
            max_tokens=body.max_completion_tokens or body.max_tokens,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        ),
        messages=read_messages(body.messages),
        tools=tools,
        tool_choice=tool_choice,
        reasoning=read_effort(body.reasoning_effort, found),
        # True is every provider's default.
        parallel_tool_calls=False if body.parallel_tool_calls is False and tools else None,
        allowed_tools=allowed,
        adapter=found.adapter,
        user=body.user or body.safety_identifier,
        priority=body.priority,
        cache_key=body.prompt_cache_key,
        foreign=Foreign(DIALECT, foreign) if foreign else None,
        **read_form(body),
    )
    return simplify(request, found)


def _check(body: ChatBody) -> None:
    refuse_unsupported(body, _REFUSED)
    limits = {body.max_tokens, body.max_completion_tokens} - {None}
    InvalidParameter.refuse_first(
        (body.modalities not in {None, ("text",)}, "modalities", "unsupported_value", 'modalities must be ["text"]'),
        # 0 is what some clients send for none.
        (body.top_logprobs and not body.logprobs, "top_logprobs", None, "top_logprobs: send it with logprobs = true"),
        (len(limits) > 1, "max_tokens", None, "max_tokens differs from max_completion_tokens; send the latter alone"),
    )


def read_effort(effort: Effort | None, found: FoundModel) -> Reasoning | None:
    """How much to think; None also if a model that does not reason is asked for no thinking."""
    if effort is None or (effort == "none" and "reasoning" not in found.features):
        return None
    return Reasoning(effort)


def simplify(request: TextCompletionRequest, found: FoundModel, field: str = "messages") -> TextCompletionRequest:
    """A single question as `system` and `prompt`: a plain peer reads nothing else.

    Raises:
        BadRequest: this is for a plain peer, and more than a question.
    """
    *instructions, question = request.messages
    if _is_text(question, "user") and all(_is_text(turn, "system") for turn in instructions):
        system = "\n\n".join(turn.text for turn in instructions) or None
        request = msgspec.structs.replace(request, system=system, prompt=question.text, messages=())
    elif found.route.plain:
        raise InvalidParameter(
            f"{field}: this model takes one question of the user, in text, after instructions of the system",
            field,
            "unsupported_value",
        )
    found.check(request)
    return request


def _is_text(turn: Message, role: str) -> bool:
    return turn.role == role and bool(turn.text) and isinstance(turn.content, str) and turn.name is None
