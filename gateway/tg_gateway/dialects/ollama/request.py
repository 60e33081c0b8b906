"""The body of a chat or of a text -> a request record: every field has its place there, or is refused or listed."""

from collections.abc import Iterator
from typing import Any

import msgspec

from tg_gateway.dialects import FoundModel
from tg_gateway.dialects.chat import check_peer, simplify
from tg_gateway.dialects.ollama.bodies import AnswerBody, ChatBody, FunctionTool, GenerateBody, Options
from tg_gateway.dialects.ollama.messages import read_images, read_messages
from tg_gateway.dialects.ollama.sampling import read_form, read_reasoning, read_sampling
from tg_schema import Message, TextCompletionRequest, TextPart, Tool, decode
from tg_schema.errors import BadRequest


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
    return simplify(request, plain=found.route.plain)


def read_generate(body: GenerateBody, found: FoundModel) -> TextCompletionRequest:
    """The request record of a text with a prompt.

    With `raw` the prompt goes to the model as it is. So does one with a `suffix`, where the model takes raw text.

    Raises:
        BadRequest: a field is senseless, or asks for what cannot be answered.
    """
    _check(body)
    images = read_images("images", body.images)
    if images:
        system = (Message("system", body.system),) if body.system else ()
        fields: dict[str, Any] = {"messages": (*system, Message("user", (TextPart(body.prompt or ""), *images)))}
    else:
        # Nothing is known of a model that is not announced yet: its processor will refuse what it lacks.
        takes_raw = "raw" in found.features or not (found.features or found.route.plain)
        raw = bool(body.raw) or bool(body.suffix and takes_raw)
        fields = {"system": body.system or None, "prompt": body.prompt, "raw": raw, "suffix": body.suffix or None}
    request = TextCompletionRequest(**fields, **_read_shared(body, found))
    check_peer(found, [request])
    return request


def _read_shared(body: AnswerBody, found: FoundModel) -> dict[str, Any]:
    return {
        # Ollama streams unless it is told not to.
        "streaming": body.stream is not False,
        "model": found.model,
        "adapter": found.adapter,
        "sampling": read_sampling(body),
        "reasoning": read_reasoning(body, found),
        **read_form(body),
    }


def _check(body: GenerateBody) -> None:
    if body.template:
        raise BadRequest("template is not supported: the model has its own; send raw = true with the whole prompt")
    if body.context:
        raise BadRequest("context is not supported: nothing is kept between requests; send the turns to /api/chat")
    if body.system and (body.raw or body.suffix):
        raise BadRequest("system: a prompt that is raw or has a suffix has no instructions; write them into the prompt")
    if body.images and (body.raw or body.suffix):
        raise BadRequest("images: a prompt that is raw or has a suffix has no images; leave them out")


def _read_tool(place: str, tool: FunctionTool) -> Tool:
    if tool.type not in {None, "", "function"}:
        raise BadRequest(f"{place}.type: tools of this type cannot be passed on; send functions")
    function = tool.function
    known = Tool(function.name, function.description or "")
    return known if function.parameters is None else Tool(known.name, known.description, function.parameters)


class _WithOptions(msgspec.Struct, frozen=True):
    options: dict[str, msgspec.Raw] | None = None


def list_ignored(data: bytes, kind: type[msgspec.Struct]) -> Iterator[str]:
    """The names of ignored fields; options of the engine, such as `num_gpu`, as `options.num_gpu`.

    Args:
        data: the JSON of a body.
        kind: what it was read as.
    """
    known = set(kind.__struct_fields__)
    yield from decode(dict[str, msgspec.Raw], data).keys() - known - {"options"}
    options = decode(_WithOptions, data).options or {}
    used = set(Options.__struct_fields__) if "options" in known else set[str]()
    yield from (f"options.{name}" for name in options.keys() - used)
