"""A request's JSON -> its record. Fields of other APIs are refused with the name of ours, never ignored.

Ignoring a field changes the answer silently: a client that sends `temperature` in the wrong place would believe that it
has an effect. So a name that another API uses, or that is nearly one of ours, is refused. Any other unknown name is
ignored: the clients of TrustGraph, and newer clients of ours, send fields that this gateway need not know.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

import msgspec

from tg_schema import (
    AGENT,
    PROMPT,
    TEXT_COMPLETION,
    AgentRequest,
    PromptRequest,
    Sampling,
    ServiceSpec,
    TextCompletionRequest,
    decode,
)
from tg_schema.errors import BadRequest

MAX_NAME_CHARACTERS = 40
"""Longer unknown names are ignored without a comparison, because no field has such a long name."""
MAX_COMPARED = 20
"""How many unknown names of one request are compared with ours."""
MIN_SIMILARITY_SHARE = 0.8
"""Similarity from which an unknown name counts as a mistyped name of ours."""

_STREAM = {"stream": "`streaming`"}
_SAMPLING: Final = {
    **{name: f"`sampling.{name}`" for name in Sampling.__struct_fields__},
    **dict.fromkeys(
        ("max_completion_tokens", "max_output_tokens", "max_new_tokens", "maxTokens"), "`sampling.max_tokens`"
    ),
    "topP": "`sampling.top_p`",
    "topK": "`sampling.top_k`",
    "n_predict": "`sampling.max_tokens`",
    "stop_sequences": "`sampling.stop`",
    "top_logprobs": "`sampling.logprobs`",
    "num_return_sequences": "`sampling.n`",
}
_NOT_HERE: Final = dict.fromkeys(
    (*_SAMPLING, "sampling", "model"), "the text-completion service, or the options of the flow's model"
)
_PLACES: Final[Mapping[str, Mapping[str, str]]] = {
    "text-completion": _STREAM
    | _SAMPLING
    | {
        "input": "`prompt`",
        "question": "`prompt`",
        "system_prompt": "`system`",
        "instructions": "`system`",
        "format": '`response_format` ("json") or `schema`',
        "json_schema": "`schema`",
        "functions": "`tools`",
        "function_call": "`tool_choice`",
        "variables": "the prompt service",
        "history": "`messages`",
        "image": "a part of a message's `content`",
        "images": "a part of a message's `content`",
        "reasoning_effort": "`reasoning.effort`",
        "thinking": "`reasoning.budget`",
        "thinking_budget": "`reasoning.budget`",
        "prompt_cache_key": "`cache_key`",
        "lora": "`adapter`",
    },
    "prompt": _STREAM
    | _NOT_HERE
    | {
        "name": "`id`",
        "template": "`id`",
        "prompt_id": "`id`",
        "template_id": "`id`",
        "inputs": "`variables`",
        "parameters": "`variables`",
        "messages": "the text-completion service",
        "prompt": "the text-completion service; a prompt is asked for by its `id`",
    },
    "agent": _STREAM
    | _NOT_HERE
    | {
        "prompt": "`question`",
        "input": "`question`",
        "messages": "`question`, and `history` for what came before",
        "groups": "`group`",
        "tools": "the configuration; a request chooses among them with `group`",
    },
}
_THEIRS: Final = frozenset(
    {"user", "workspace", "collection", "session_id", "conversation_id", "task_type", "framing", "plan"}
    | {"correlation_id", "parent_session_id", "subagent_goal", "expected_siblings"}
)
"""Fields that TrustGraph's clients send."""


def parse_fields(spec: ServiceSpec[Any, Any], body: bytes) -> Any:
    """The fields of a service's request. This and the functions below raise BadRequest for malformed bodies."""
    request, sent = decode(spec.request, body), decode(dict[str, msgspec.Raw], body)
    check_names(spec.name, spec.request, sent)
    return request


def parse_completion(body: bytes) -> TextCompletionRequest:
    """`{"system","prompt","streaming", ...}`."""
    request: TextCompletionRequest = parse_fields(TEXT_COMPLETION, body)
    if request.continuation:
        raise BadRequest("continuation is set on the bus alone, where an answer's processor has died; leave it out")
    has_prompt = request.prompt or any(turn.content or turn.tool_calls for turn in request.messages)
    if not (has_prompt or request.prompt_ids or request.operation):
        raise BadRequest("prompt is missing: send a JSON object with `prompt` (text) or `messages`")
    return request


class PromptBody(msgspec.Struct, frozen=True):
    """The body of a request for a prompt; `variables` or `terms`."""

    id: str | None = None
    variables: dict[str, msgspec.Raw] | None = None
    terms: dict[str, str] | None = None
    streaming: bool | None = False


def parse_prompt(body: bytes) -> PromptRequest:
    """`{"id","variables","streaming"}`."""
    asked, sent = decode(PromptBody, body), decode(dict[str, msgspec.Raw], body)
    check_names(PROMPT.name, PromptBody, sent)
    if not asked.id:
        raise BadRequest("id is missing: send a JSON object with `id` (a template's name) and `variables`")
    if asked.variables and asked.terms:
        raise BadRequest("send `variables` (any JSON) or `terms` (JSON text), not both")
    terms = asked.terms or _terms(asked.variables or {})
    return PromptRequest(id=asked.id, terms=terms, streaming=asked.streaming)


def _terms(variables: Mapping[str, msgspec.Raw]) -> dict[str, str]:
    """Each variable's JSON text, as it was written."""
    try:
        return {name: bytes(value).decode() for name, value in variables.items()}
    except UnicodeDecodeError:
        raise BadRequest("not valid JSON: the text is not UTF-8") from None


def parse_agent(body: bytes) -> AgentRequest:
    """`{"question","group","state","history","streaming"}`."""
    request: AgentRequest = parse_fields(AGENT, body)
    if not (request.question or "").strip():
        raise BadRequest("question is missing: send a JSON object with `question` (text)")
    return request


def check_names(service: str, request: type[msgspec.Struct], sent: Mapping[str, msgspec.Raw]) -> None:
    """Refuse fields that would be ignored although the client probably meant something by them.

    Args:
        service: the service of the request.
        request: the record whose fields are known.
        sent: the fields of a body.

    Raises:
        BadRequest: a field of another API, or a mistyped one; the message says how to spell it here.
    """
    if sent.keys() - _list_known(request):
        unknown = _list_unknown(request, sent)
        places = _PLACES.get(service, {})
        for name in unknown:
            if name in places:
                raise BadRequest(f"`{name}` is no field of a {service} request: put it into {places[name]}")
        _check_spelling(unknown, request, f"a {service} request")
    if "sampling" in _list_known(request) and (sampling := bytes(sent.get("sampling", b"null"))) != b"null":
        _check_sampling(decode(dict[str, msgspec.Raw], sampling))


def _check_sampling(sent: Mapping[str, msgspec.Raw]) -> None:
    """Every unknown name is refused here: no client of TrustGraph has this object."""
    if unknown := _list_unknown(Sampling, sent):
        _check_spelling(unknown, Sampling, "`sampling`")
        raise BadRequest(f"`{unknown[0][:MAX_NAME_CHARACTERS]}` is no field of `sampling`")


def _check_spelling(unknown: list[str], request: type[msgspec.Struct], place: str) -> None:
    for name in [name for name in unknown if len(name) <= MAX_NAME_CHARACTERS and name not in _THEIRS][:MAX_COMPARED]:
        if close := get_close_matches(name, _list_known(request), 1, MIN_SIMILARITY_SHARE):
            raise BadRequest(f"`{name}` is no field of {place}; did you mean `{close[0]}`?")


def _list_unknown(request: type[msgspec.Struct], sent: Mapping[str, msgspec.Raw]) -> list[str]:
    known = _list_known(request)
    return [name for name in sent if name not in known]


@cache
def _list_known(request: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(request))
