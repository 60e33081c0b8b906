"""The body of a chat or of a text -> a request record: every field has its place there, or is refused or listed."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tg_gateway.dialects import FoundModel, list_unknown
from tg_gateway.dialects.chat import make_tool, simplify
from tg_gateway.dialects.ollama.bodies import AnswerBody, ChatBody, FunctionTool, GenerateBody, Options
from tg_gateway.dialects.ollama.messages import read_images, read_messages
from tg_schema import Message, Sampling, TextCompletionRequest, TextPart, Tool
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Effort, Reasoning

_EFFORTS: Final[dict[str, Effort]] = {"low": "low", "medium": "medium", "high": "high"}


def read_sampling(body: AnswerBody) -> Sampling | None:
    """How tokens are chosen; None if nothing is said about it.

    Raises:
        BadRequest: a stop string is empty.
    """
    options = body.options or Options()
    stop = (options.stop,) if isinstance(options.stop, str) else options.stop or ()
    if "" in stop:
        raise BadRequest("options.stop: a stop string must not be empty")
    sampling = Sampling(
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=_whole(options.top_k),
        # In Ollama -1 and -2 stand for no limit.
        max_tokens=_whole(options.num_predict) if (options.num_predict or 0) > 0 else None,
        stop=stop,
        seed=_whole(options.seed),
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        min_p=options.min_p,
        typical_p=options.typical_p,
        repetition_penalty=options.repeat_penalty,
    )
    return None if sampling == Sampling() else sampling


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def read_form(body: AnswerBody) -> dict[str, Any]:
    """The record's fields for the form of the answer: `response_format` or `schema`.

    Raises:
        BadRequest: it is neither "json" nor a schema.
    """
    form = body.format
    if isinstance(form, dict):
        return {"schema": form}
    if form in {None, ""}:
        return {}
    if form != "json":
        raise BadRequest('format must be "json" or a JSON schema')
    return {"response_format": "json"}


def read_reasoning(body: AnswerBody, found: FoundModel) -> Reasoning | None:
    """How much to think; None also if a model that does not reason is asked for no thinking."""
    if body.think is False:
        return Reasoning("none") if "reasoning" in found.features else None
    if body.think is True:
        return Reasoning("medium")
    return Reasoning(_EFFORTS[body.think]) if body.think else None


def read_chat(body: ChatBody, found: FoundModel) -> TextCompletionRequest:
    """The request record of a chat with at least one message.

    Raises:
        BadRequest: a field is senseless, or asks for what cannot be answered.
    """
    request = TextCompletionRequest(
        messages=read_messages(body.messages or ()),
        tools=tuple(_read_tool(f"tools[{number}]", tool) for number, tool in enumerate(body.tools or ())),
        **_read_shared(body, found),
    )
    return simplify(request, found)


def read_generate(body: GenerateBody, found: FoundModel) -> TextCompletionRequest:
    """The request record of a text with a prompt.

    With `raw` the prompt goes to the model unchanged. So does one with a `suffix`, where the model takes raw text.

    Raises:
        BadRequest: a field is senseless, or asks for what cannot be answered.
    """
    _check(body)
    images = read_images("images", body.images)
    if images:
        system = (Message("system", body.system),) if body.system else ()
        fields: dict[str, Any] = {"messages": (*system, Message("user", (TextPart(body.prompt or ""), *images)))}
    else:
        # If a model is not announced yet, nothing is known about it: its processor will refuse what it lacks.
        raw = bool(body.raw) or bool(body.suffix and found.may_have("raw"))
        fields = {"system": body.system or None, "prompt": body.prompt, "raw": raw, "suffix": body.suffix or None}
    request = TextCompletionRequest(**fields, **_read_shared(body, found))
    found.check(request)
    return request


def _read_shared(body: AnswerBody, found: FoundModel) -> dict[str, Any]:
    return {
        # Ollama streams unless the request says otherwise.
        "streaming": body.stream is not False,
        "model": found.model,
        "adapter": found.adapter,
        "sampling": read_sampling(body),
        "reasoning": read_reasoning(body, found),
        **read_form(body),
    }


def _check(body: GenerateBody) -> None:
    plain = bool(body.raw or body.suffix)
    BadRequest.refuse(
        {
            "template is not supported: the model has its own; send raw = true with the whole prompt": body.template,
            "context is not supported: nothing is kept between requests; send the turns to /api/chat": body.context,
            "system: a prompt that is raw or has a suffix has no instructions; write them into the prompt": (
                body.system and plain
            ),
            "images: a prompt that is raw or has a suffix has no images; leave them out": body.images and plain,
        }
    )


def _read_tool(place: str, tool: FunctionTool) -> Tool:
    if tool.type not in {None, "", "function"}:
        raise BadRequest(f"{place}.type: tools of this type cannot be passed on; send functions")
    return make_tool(tool.function.name, tool.function.description, tool.function.parameters)


def list_ignored(data: bytes, kind: type[msgspec.Struct]) -> Iterator[str]:
    """The names of ignored fields; options of the engine, such as `num_gpu`, as `options.num_gpu`.

    Args:
        data: the JSON of a body.
        kind: the type to which it was decoded.
    """
    return list_unknown(data, kind, options=Options if "options" in kind.__struct_fields__ else None)
