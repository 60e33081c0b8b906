"""Body and headers of a message request -> TextCompletionRequest, and the fields that have no effect."""

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from tg_gateway.dialects import FoundModel, list_unknown
from tg_gateway.dialects.anthropic.blocks import (
    DIALECT,
    MAX_KIND_CHARACTERS,
    Block,
    kind_of,
    mark_of,
    read_content,
)
from tg_gateway.dialects.anthropic.body import (
    CacheControl,
    Content,
    MessageBody,
    OutputConfig,
    Thinking,
    ToolChoice,
    Turn,
)
from tg_gateway.dialects.anthropic.signatures import is_of_call, unwrap_call_signatures
from tg_schema import Message, Sampling, TextCompletionRequest, TextPart, Tool, ToolCall, decode
from tg_schema.conversation import ForeignPart, Part, ReasoningPart, Role, make_content
from tg_schema.errors import BadRequest
from tg_schema.text_completion import SYSTEM_ROLES, Foreign, Reasoning

FOREIGN_FIELDS: Final = f"{DIALECT}_fields"
"""The feature of providers that pass on Anthropic's own fields and blocks."""
MAX_BETAS = 64
"""Names of beta versions that are passed on."""


_CUSTOM: Final = frozenset({None, "custom"})
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def read_turns(turns: Iterable[Turn]) -> Iterator[Message]:
    """The conversation, in order.

    Raises:
        BadRequest: a block is wrong, or is in a turn of the wrong role.
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
        yield Message("system", make_content((block,)))


def _read_user(blocks: Iterable[Block], place: str) -> Iterator[Message]:
    parts: list[Part] = []
    for block in blocks:
        match block:
            case Message():
                yield from _flush("user", parts, [])
                yield block
            case ToolCall():
                raise BadRequest(f"{place}: tool_use belongs to a message of the assistant")
            case ReasoningPart():
                raise BadRequest(f"{place}: thinking belongs to a message of the assistant")
            case _:
                parts.append(block)
    yield from _flush("user", parts, [])


def _read_assistant(blocks: list[Block], place: str) -> Iterator[Message]:
    # Before the calls are read: a signature may come after its call.
    signatures = unwrap_call_signatures(blocks)
    parts: list[Part] = []
    calls: list[ToolCall] = []
    for block in blocks:
        match block:
            case Message():
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
    """Whether the part's place among the calls matters."""
    return isinstance(part, ForeignPart) or (isinstance(part, ReasoningPart) and part.signature is not None)


def _flush(role: Role, parts: list[Part], calls: list[ToolCall]) -> Iterator[Message]:
    if parts or calls:
        yield Message(role, make_content(tuple(parts)), tool_calls=tuple(calls))
        parts.clear()
        calls.clear()


class _Kind(msgspec.Struct, frozen=True):
    type: str | None = None


class _Tool(msgspec.Struct, frozen=True):
    name: str
    input_schema: dict[str, Any]
    type: str | None = None
    description: str | None = None
    strict: bool | None = None
    cache_control: CacheControl | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools that a request offers.

    Attributes:
        tools: functions of the client.
        foreign: tools that are passed on to Anthropic's API unchanged.
        ignored: fields of functions that their model's provider does not know.
    """

    tools: tuple[Tool, ...] = ()
    foreign: tuple[dict[str, Any], ...] = ()
    ignored: tuple[str, ...] = ()


def read_tools(given: Iterable[msgspec.Raw], *, passes_foreign: bool | None) -> Tools:
    """The tools of a request.

    Args:
        given: their JSON.
        passes_foreign: whether the model's provider accepts foreign ones; None = not known yet.

    Raises:
        BadRequest: a tool lacks a field or has a wrong one, or the model's provider cannot have it.
    """
    tools, foreign, ignored = [], [], dict[str, None]()
    for number, raw in enumerate(given):
        place = f"tools.{number}"
        try:
            # The kind alone at first: a tool of Anthropic's servers has other fields, and would be refused for them.
            kind = decode(_Kind, bytes(raw)).type
            if kind not in _CUSTOM and passes_foreign is False:
                raise BadRequest(f"the model has no tools of type {str(kind)[:MAX_KIND_CHARACTERS]!r}; leave it out")
            fields = decode(dict[str, msgspec.Raw], bytes(raw)) if kind in _CUSTOM else ()
            unknown = [name for name in fields if name not in _Tool.__struct_fields__]
            if kind not in _CUSTOM or (unknown and passes_foreign):
                foreign.append(decode(dict[str, Any], bytes(raw)))
            else:
                tools.append(_convert(decode(_Tool, bytes(raw))))
                ignored |= dict.fromkeys(f"tools.{name}" for name in unknown)
        except BadRequest as error:
            raise BadRequest(f"{place}: {error.message}") from None
    return Tools(tuple(tools), tuple(foreign), tuple(ignored))


def read_choice(choice: ToolChoice | None) -> str | None:
    """Which tool must be called, in the form of our records.

    Raises:
        BadRequest: a tool must be called, but none is named.
    """
    if choice is None:
        return None
    if choice.type == "tool":
        if not choice.name:
            raise BadRequest("tool_choice.name is missing: name the tool that must be called")
        return choice.name
    return _CHOICES[choice.type]


def is_foreign_choice(choice: str | None, tools: Tools) -> bool:
    """Whether only a foreign tool can satisfy `tool_choice`."""
    if not tools.foreign or choice in {None, "auto", "none"}:
        return False
    return not tools.tools if choice == "required" else choice not in {tool.name for tool in tools.tools}


def _convert(tool: _Tool) -> Tool:
    mark = mark_of(tool.cache_control)
    return Tool(tool.name, tool.description or "", tool.input_schema, strict=bool(tool.strict), cache=mark)


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
        raw: the client's body, unchanged.
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
    return MessageRequest(_check(request.shorten(), found), ignored)


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
    # Also fields within those that our records do have, such as `output_config.task_budget`.
    unknown = tuple(list_unknown(raw, MessageBody, output_config=OutputConfig, thinking=Thinking))
    versions = tuple(name for beta in betas.split(",") if (name := beta.strip()))[:MAX_BETAS]
    if not knows:
        # Server tools are not dropped: the model's features are not known yet, and its processors will refuse them.
        foreign = Foreign(DIALECT, {}, tools.foreign, versions) if tools.foreign else None
        return foreign, (*unknown, *(("anthropic-beta",) if versions else ()))
    # Our records can express these only in part, so they are passed on unchanged.
    whole = {name if name in sent else name.partition(".")[0] for name in unknown}
    whole |= {"thinking"} if body.thinking else set()
    if is_foreign_choice(read_choice(body.tool_choice), tools):
        whole.add("tool_choice")
    fields = {name: decode(Any, bytes(value)) for name, value in sent.items() if name in whole}
    return Foreign(DIALECT, fields, tools.foreign, versions) if whole or versions or tools.foreign else None, ()


def _check(request: TextCompletionRequest, found: FoundModel) -> TextCompletionRequest:
    """Refuse, by name, fields that the model cannot honour; the requestor refuses other missing features."""
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
