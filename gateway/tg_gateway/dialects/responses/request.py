"""Request body -> record of the text completion, and the names of the ignored fields."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from tg_gateway.dialects import FieldNames, FoundModel, InvalidParameter
from tg_gateway.dialects.chat import DIALECT as OPENAI_DIALECT
from tg_gateway.dialects.chat import decode_body, read_effort, simplify
from tg_gateway.dialects.responses.input_items import read_items
from tg_gateway.dialects.responses.request_body import (
    ENCRYPTED_REASONING,
    TEXT_LOGPROBS,
    FormatBody,
    InputItem,
    RequestBody,
    ToolBody,
)
from tg_gateway.dialects.responses.tools import make_tools, read_choice, split_tools
from tg_schema import Message, Sampling, TextCompletionRequest, TextCompletionResponse, decode, encode
from tg_schema.errors import ProtocolError
from tg_schema.text_completion import Foreign

DIALECT: Final = "responses"
"""This door's name in the log."""
_FIELDS: Final = frozenset(RequestBody.__struct_fields__)
_OWN_FIELDS: Final = f"{OPENAI_DIALECT}_fields"
_NOT_KEPT: Final = "conversations are not kept here: send the earlier items in input"
NO_INPUT: Final = "input is missing: send a text, or a list of items"
_WAITING: Final = frozenset({"service_tier", "max_wait", "max_attempts"})
_INCLUDED: Final = frozenset({ENCRYPTED_REASONING, TEXT_LOGPROBS})


class ReadRequest(NamedTuple):
    """The parts of a request that its answer needs.

    Attributes:
        body: the body, unchanged.
        functions: the tools that the model gets.
        record: the request's record.
        ignored: names of fields that are left out of the record.
    """

    body: RequestBody
    functions: tuple[ToolBody, ...]
    record: TextCompletionRequest
    ignored: tuple[str, ...]


def read_body(data: bytes) -> RequestBody:
    """The fields of a request.

    Raises:
        BadRequest: a field is wrong or missing, or asks for something that is not kept here; the message says what to
            send.
    """
    body = decode_body(RequestBody, data)
    check_body(body)
    return body


def list_items(body: RequestBody) -> tuple[InputItem, ...]:
    """The items of `input`; a text is one message of the user's."""
    if isinstance(body.input, str):
        return (InputItem(role="user", content=body.input),) if body.input else ()
    return body.input or ()


def check_body(body: RequestBody) -> None:
    """Check that a request needs nothing that is not kept, besides the response that it names as the previous one.

    Raises:
        InvalidParameter: as `read_body`.
    """
    InvalidParameter.refuse_first(
        (body.conversation is not None, "conversation", None, _NOT_KEPT),
        (body.prompt is not None, "prompt", None, "prompts are not kept here: send instructions and input"),
        (
            body.background and body.store is False,
            "store",
            None,
            "a response in the background is kept: leave store out, or send background: false",
        ),
        (
            body.max_attempts is not None and not body.flexible,
            "max_attempts",
            None,
            'max_attempts is for what waits: send background: true and service_tier: "flex", or leave it out',
        ),
        (not body.input, "input", "missing_required_parameter", NO_INPUT),
    )


def make_request(data: bytes, body: RequestBody, found: FoundModel, kept: int = 0) -> ReadRequest:
    """The record for a body.

    Args:
        data: the JSON that the body was made of.
        body: the body, accepted by `check_body`.
        found: the model that its `model` means.
        kept: how many items of `input` come from an earlier response.

    Raises:
        InvalidParameter: an item, a tool or the choice of tools is wrong.
    """
    functions, left_out = split_tools(body.tools or ())
    choice, allowed = read_choice(body, functions)
    messages, unreadable = _read_input(body, kept)
    form = (body.text.format if body.text else None) or FormatBody("text")
    verbosity = body.text.verbosity if body.text and _OWN_FIELDS in found.features else None
    effort = body.reasoning.effort if body.reasoning else None
    if form.type == "json_schema" and form.schema is None:
        raise InvalidParameter("the schema is missing", "text.format.schema", "missing_required_parameter")
    record = TextCompletionRequest(
        streaming=bool(body.stream),
        model=found.model,
        sampling=_make_sampling(body),
        response_format="json" if form.type == "json_object" else None,
        schema=form.schema if form.type == "json_schema" else None,
        schema_name=form.name,
        schema_description=form.description,
        schema_strict=bool(form.strict),
        messages=messages,
        tools=make_tools(functions),
        tool_choice=choice,
        allowed_tools=allowed,
        parallel_tool_calls=False if functions and body.parallel_tool_calls is False else None,
        reasoning=read_effort(effort, found),
        adapter=found.adapter,
        user=body.user or body.safety_identifier,
        cache_key=body.prompt_cache_key,
        sheddable=body.flexible,
        foreign=Foreign(OPENAI_DIALECT, {"verbosity": verbosity}) if verbosity else None,
    )
    record = simplify(record, found, "input")
    ignored = [*_list_ignored(data, body), *left_out, *unreadable]
    if body.text and body.text.verbosity and not verbosity:
        ignored.append("text.verbosity")
    return ReadRequest(body, functions, record, tuple(ignored))


def make_count(request: ReadRequest) -> TextCompletionRequest:
    """The record that asks how many tokens a request has."""
    return msgspec.structs.replace(request.record, operation="count-tokens", streaming=False, sampling=None)


class InputTokens(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens a request has."""

    object: str = "response.input_tokens"
    input_tokens: int


def encode_count(records: Sequence[TextCompletionResponse]) -> bytes:
    """The tokens of a request.

    Raises:
        ProtocolError: the number of tokens is not known.
    """
    count = records[-1].in_token
    if count is None:
        raise ProtocolError("the model did not say how many tokens the request has")
    return encode(InputTokens(input_tokens=count))


def _read_input(body: RequestBody, kept: int) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    turns, unreadable = read_items(list_items(body), kept)
    if not turns:
        raise InvalidParameter(NO_INPUT, "input", "missing_required_parameter")
    return ((Message("system", body.instructions), *turns) if body.instructions else turns), unreadable


def _make_sampling(body: RequestBody) -> Sampling | None:
    logprobs = (body.top_logprobs or 0) if body.top_logprobs or body.includes(TEXT_LOGPROBS) else None
    sampling = Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        max_tokens=body.max_output_tokens,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logprobs=logprobs,
    )
    return None if sampling == Sampling() else sampling


def _list_ignored(data: bytes, body: RequestBody) -> list[str]:
    used = _FIELDS if body.flexible else _FIELDS - _WAITING
    names = [name for name in decode(dict[str, msgspec.Raw], data) if name not in used]
    names += ["truncation"] if body.truncation == "auto" else []
    return names + [f"include.{what}" for what in body.include or () if what not in _INCLUDED]


RESPONSES_FIELDS: Final = FieldNames(
    {
        "max_tokens": "max_output_tokens",
        "logprobs": "top_logprobs",
        "schema": "text.format.schema",
        "messages": "input",
        "reasoning": "reasoning.effort",
        "tools": "tools",
        "tool_choice": "tool_choice",
    },
)
