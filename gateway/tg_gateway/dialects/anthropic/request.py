"""Body and headers of a message request -> TextCompletionRequest, and the fields that have no effect."""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final, NamedTuple

import msgspec

from tg_gateway.dialects import FoundModel
from tg_gateway.dialects.anthropic.blocks import DIALECT, kind_of
from tg_gateway.dialects.anthropic.body import MessageBody, OutputConfig, Thinking
from tg_gateway.dialects.anthropic.tools import Tools, is_foreign_choice, read_choice, read_tools
from tg_gateway.dialects.anthropic.turns import read_system, read_turns
from tg_schema import Message, Sampling, TextCompletionRequest, decode
from tg_schema.conversation import ForeignPart, Part
from tg_schema.errors import BadRequest
from tg_schema.text_completion import SYSTEM_ROLES, Foreign, Reasoning

FOREIGN_FIELDS: Final = f"{DIALECT}_fields"
"""The feature of providers that pass on Anthropic's own fields and blocks."""
MAX_BETAS = 64
"""Names of beta versions that are passed on."""


def _list_nested(sent: Mapping[str, msgspec.Raw]) -> Iterator[str]:
    for outer, shape in (("output_config", OutputConfig), ("thinking", Thinking)):
        given = bytes(sent.get(outer, b"null"))
        fields = {} if given == b"null" else decode(dict[str, msgspec.Raw], given)
        yield from (f"{outer}.{name}" for name in fields if name not in shape.__struct_fields__)


def _read_reasoning(body: MessageBody, features: Set[str]) -> tuple[Reasoning | None, tuple[str, ...]]:
    """How much the model should think, and the names of fields that a model without reasoning does not need.

    A budget is required: a model that does not reason refuses it. Adaptive thinking leaves it to the model, and an
    effort is a hint, so both are ignored where the model does not reason.

    Args:
        body: the request.
        features: what the model's processors announce.
    """
    kind = body.thinking.type if body.thinking else None
    budget = body.thinking.budget_tokens if body.thinking else None
    effort = body.output_config.effort if body.output_config else None
    if kind == "enabled":
        return Reasoning(effort, budget), ()
    if "reasoning" in features:
        budget = 0 if kind == "disabled" else None
        return Reasoning(effort, budget) if kind or effort else None, ()
    wishes = {"thinking": kind == "adaptive", "output_config.effort": effort is not None}
    return None, tuple(name for name, given in wishes.items() if given)


class MessageRequest(NamedTuple):
    """A record, and the names of fields without any effect on the answer."""

    request: TextCompletionRequest
    ignored: tuple[str, ...]


def read_request(body: MessageBody, raw: bytes, betas: str, found: FoundModel) -> MessageRequest:
    """A request for a model that has been found.

    Args:
        body: the decoded body.
        raw: the body as it came.
        betas: the header `anthropic-beta`; "" = there is none.
        found: the model, and what its processors announce.

    Raises:
        BadRequest: the message names the field and what to do.
    """
    knows = FOREIGN_FIELDS in found.features
    tools = read_tools(body.tools or (), passes_foreign=knows if found.features else None)
    reasoning, needless = _read_reasoning(body, found.features)
    foreign, unused = _read_foreign(body, raw, betas, tools, knows=knows)
    form = (body.output_config.format if body.output_config else None) or body.output_format
    request = TextCompletionRequest(
        model=found.model,
        adapter=found.adapter,
        streaming=bool(body.stream),
        messages=_read_conversation(body),
        sampling=Sampling(
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            max_tokens=body.max_tokens,
            stop=body.stop_sequences or (),
        ),
        schema=form.schema if form else None,
        tools=tools.tools,
        # A choice that is passed on unchanged must not be in our record too.
        tool_choice=None if foreign and "tool_choice" in foreign.fields else read_choice(body.tool_choice),
        parallel_tool_calls=False if body.tool_choice and body.tool_choice.disable_parallel_tool_use else None,
        reasoning=reasoning,
        user=body.metadata.user_id if body.metadata else None,
        foreign=foreign,
    )
    marks = () if knows or not _has_marks(request) else ("cache_control",)
    ignored = (*unused, *needless, *tools.ignored, *marks)
    return MessageRequest(_check(_shorten(request), found), ignored)


def _read_conversation(body: MessageBody) -> tuple[Message, ...]:
    system = tuple(read_system(body.system, "system")) if body.system else ()
    turns = tuple(read_turns(body.messages))
    if all(turn.role in SYSTEM_ROLES or turn == Message(turn.role, "") for turn in turns):
        raise BadRequest("messages is missing or empty: send at least one message with content")
    return (*system, *turns)


def _read_foreign(
    body: MessageBody, raw: bytes, betas: str, tools: Tools, *, knows: bool
) -> tuple[Foreign | None, tuple[str, ...]]:
    """The fields that only Anthropic's API knows, and the names of those that are ignored."""
    sent = decode(dict[str, msgspec.Raw], raw)
    own = [name for name in sent if name not in MessageBody.__struct_fields__]
    # Fields within those that our records do have, such as `output_config.task_budget`.
    nested = [*_list_nested(sent)]
    versions = tuple(name for beta in betas.split(",") if (name := beta.strip()))[:MAX_BETAS]
    if not knows:
        # Server tools are not dropped: the model's features are not known yet, and its processors will refuse them.
        foreign = Foreign(DIALECT, {}, tools.foreign, versions) if tools.foreign else None
        return foreign, (*own, *nested, *(("anthropic-beta",) if versions else ()))
    # Our records can express these only in part, so they are passed on unchanged.
    whole = {*own, *(name.partition(".")[0] for name in nested), *(("thinking",) if body.thinking else ())}
    if is_foreign_choice(read_choice(body.tool_choice), tools):
        whole.add("tool_choice")
    fields = {name: decode(Any, bytes(value)) for name, value in sent.items() if name in whole}
    return Foreign(DIALECT, fields, tools.foreign, versions) if whole or versions or tools.foreign else None, ()


def _shorten(request: TextCompletionRequest) -> TextCompletionRequest:
    """Write instructions and one question as `system` and `prompt`, which all processors know, plain peers included."""
    match request.messages:
        case (Message("user", str() as prompt),):
            return msgspec.structs.replace(request, messages=(), prompt=prompt)
        case (Message("system", str() as system), Message("user", str() as prompt)):
            return msgspec.structs.replace(request, messages=(), system=system, prompt=prompt)
        case _:
            return request


def _check(request: TextCompletionRequest, found: FoundModel) -> TextCompletionRequest:
    """Refuse by its name what the model cannot do; the requestor refuses the rest by the features that it lacks."""
    if found.features and FOREIGN_FIELDS not in found.features:
        for part in _list_parts(request.messages):
            if isinstance(part, ForeignPart):
                kind = kind_of(part)
                raise BadRequest(f"the model reads no content blocks of type {kind!r}; leave it out, or ask another")
    found.check(request)
    return request


def _list_parts(turns: Iterable[Message]) -> Iterator[Part]:
    return (part for turn in turns if not isinstance(turn.content, str) for part in turn.content)


def _has_marks(request: TextCompletionRequest) -> bool:
    calls = (call for turn in request.messages for call in turn.tool_calls)
    marked = (*request.tools, *request.messages, *calls, *_list_parts(request.messages))
    return any(getattr(each, "cache", None) for each in marked)
