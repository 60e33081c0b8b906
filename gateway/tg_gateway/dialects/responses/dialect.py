"""OpenAI's Responses API: parse, answer and refuse; and the requests about kept responses."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tg_base.config import GatewayConfig
from tg_gateway.dialects import (
    ASKING,
    EVENTS,
    Answer,
    Ask,
    Call,
    CompletionWriter,
    Conversation,
    Description,
    Dialect,
    FoundModel,
    InvalidParameter,
    Mount,
    Socket,
    StreamedAnswer,
    Waiting,
    Writer,
    show_ignored,
)
from tg_gateway.dialects.chat import Failure, refuse
from tg_gateway.dialects.responses.background_response import WaitTerms, make_background
from tg_gateway.dialects.responses.compaction import (
    Compaction,
    encode_compaction,
    list_ignored,
    make_compaction,
    read_compaction,
)
from tg_gateway.dialects.responses.conversation import ResponsesConversation
from tg_gateway.dialects.responses.events import list_events
from tg_gateway.dialects.responses.kept_items import ItemPage, PageQuery, encode_page, refers, resolve_references
from tg_gateway.dialects.responses.kept_response import (
    DeletedResponse,
    RetrieveQuery,
    check_items,
    make_keep,
    read_answer,
    recall,
    recall_items,
    repeat_events,
)
from tg_gateway.dialects.responses.request import (
    DIALECT,
    RESPONSES_FIELDS,
    InputTokens,
    ReadRequest,
    encode_count,
    list_items,
    make_count,
    make_request,
    read_body,
)
from tg_gateway.dialects.responses.request_body import InputItem, RequestBody
from tg_gateway.dialects.responses.response_draft import ResponseDraft, make_draft
from tg_gateway.dialects.responses.response_object import ResponseObject
from tg_gateway.dialects.responses.writers import (
    EventWriter,
    KeptEventWriter,
    encode_whole,
)
from tg_schema import TextCompletionResponse, TgError, encode
from tg_schema.errors import BadRequest, BusError, NotFound, Timeout, Unavailable

_describe = partial(Description, group="OpenAI Responses", failure=Failure)
_ask = partial(_describe, body=RequestBody, raises=ASKING)
_about_kept = partial(
    _describe,
    path={"response": "resp_0123456789abcdef"},
    raises=(BadRequest, NotFound, Timeout, Unavailable, BusError),
)
_HELLO: Final[Mapping[str, Any]] = {"model": "tinydemo", "input": "Hello"}
_EVENTS: Final = tuple(list_events())


class Responses(Dialect):
    """`POST /v1/responses`, whole and streamed; token counts, compaction, and kept responses."""

    descriptions: ClassVar[Mapping[str, Description]] = {
        "create": _ask(
            summary="Continue a conversation",
            required=("input",),
            answer=ResponseObject,
            events=EVENTS,
            event=_EVENTS,
            examples={
                "whole": {**_HELLO, "max_output_tokens": 16},
                "streamed": {**_HELLO, "stream": True},
                "kept": {**_HELLO, "max_output_tokens": 16, "store": True},
            },
        ),
        "converse": _describe(summary="Open a WebSocket for many responses at once"),
        "input-tokens": _ask(
            summary="Count the tokens of a conversation",
            required=("input",),
            answer=InputTokens,
            examples={"text": _HELLO},
        ),
        "compact": _ask(
            summary="Put a summary in place of a conversation",
            required=("model", "input"),
            answer=Compaction,
            examples={"text": _HELLO},
        ),
        "retrieve": _about_kept(
            summary="Show a kept response, or repeat its events",
            query=RetrieveQuery,
            answer=ResponseObject,
            events=EVENTS,
            event=_EVENTS,
        ),
        "delete": _about_kept(summary="Delete a kept response", answer=DeletedResponse),
        "input-items": _about_kept(summary="List what a kept response was asked", query=PageQuery, answer=ItemPage),
        "cancel": _about_kept(summary="Cancel a response in the background", answer=ResponseObject),
    }

    def __init__(self, waits: WaitTerms | None = None) -> None:
        self._waits = waits

    @override
    def configure(self, config: GatewayConfig) -> "Responses":
        waits = WaitTerms(config.max_wait, config.default_max_attempts)
        return Responses(waits if config.max_wait else None)

    @override
    def parse(self, call: Call) -> Ask | Answer | Awaitable[Ask | Answer | StreamedAnswer]:
        if (answer := _ABOUT_KEPT.get(call.operation)) is not None:
            return answer(call)
        body = read_compaction(call.body) if call.operation == "compact" else read_body(call.body)
        if self._waits is None:
            if body.max_attempts is not None:
                raise InvalidParameter(
                    "no response waits at this gateway, which has no max_wait: leave max_attempts out", "max_attempts"
                )
            body = msgspec.structs.replace(body, service_tier=None)
        if not call.stores:
            if body.background:
                raise InvalidParameter("nothing is kept for your key: leave background out", "background")
            body = msgspec.structs.replace(body, store=False)
        if body.previous_response_id is None and not body.background and not refers(list_items(body)):
            return _make_ask(call, body, list_items(body))
        return _go_on(call, body, self._waits)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        about_field = call.operation in {"create", "input-tokens", "compact"} or isinstance(error, InvalidParameter)
        return refuse(error, status, known_path=about_field)

    @override
    def converse(self, socket: Socket) -> Conversation:
        return ResponsesConversation(socket)


async def _go_on(call: Call, body: RequestBody, waits: WaitTerms | None) -> Ask:
    """Parse a request that needs a kept response, or that runs in the background."""
    previous = body.previous_response_id
    earlier = () if previous is None else await recall_items(call.kept, previous)
    items = (*earlier, *await resolve_references(call.kept, list_items(body), earlier))
    if earlier or refers(list_items(body)):
        body = msgspec.structs.replace(body, input=items)
    # Clients read such a response on other connections, so it is always kept.
    if body.background:
        body = msgspec.structs.replace(body, store=True)
    return _make_ask(call, body, items, len(earlier), waits)


def _make_ask(
    call: Call, body: RequestBody, items: tuple[InputItem, ...], earlier: int = 0, waits: WaitTerms | None = None
) -> Ask:
    found = call.catalogue.find_model(body.model)
    call.route = found.route
    if call.operation == "compact":
        summary = make_compaction(body, items, found, earlier)
        return Ask(
            found.route,
            summary,
            CompletionWriter(encode_compaction),
            streaming=False,
            fields=RESPONSES_FIELDS,
            headers=show_ignored(DIALECT, list_ignored(call.body)),
        )
    kept = _encode_kept(body, items) if call.operation == "create" else b""
    request = make_request(call.body, msgspec.structs.replace(body, store=bool(kept)), found, earlier)
    if call.operation == "input-tokens":
        return Ask(
            found.route, make_count(request), CompletionWriter(encode_count), streaming=False, fields=RESPONSES_FIELDS
        )
    draft = make_draft(request, found.model or body.model or "")
    headers = show_ignored(DIALECT, request.ignored)
    if body.background:
        waiting = waits.make_waiting(body) if waits and body.flexible else None
        return _ask_in_background(found, draft, request, items, waiting)
    events: list[bytes] = []
    writer: Writer[TextCompletionResponse]
    if body.stream:
        writer = KeptEventWriter(draft, events) if body.store else EventWriter(draft)
    else:
        writer = CompletionWriter(partial(encode_whole, draft=draft))
    keep = make_keep(draft, kept, events, optional=not body.store) if kept else None
    return Ask(
        found.route,
        request.record,
        writer,
        bool(body.stream),
        keep=keep,
        fields=RESPONSES_FIELDS,
        headers=headers,
    )


def _encode_kept(body: RequestBody, items: tuple[InputItem, ...]) -> bytes:
    """The conversation in its kept form; b"" = it is not kept. Without `store`, it is kept if it fits."""
    if body.store is False:
        return b""
    try:
        # Check this before a model is asked, so that a conversation that is too large to keep costs nothing.
        return check_items(items)
    except InvalidParameter:
        if body.store:
            raise
        return b""


def _ask_in_background(
    found: FoundModel, draft: ResponseDraft, request: ReadRequest, items: tuple[InputItem, ...], waiting: Waiting | None
) -> Ask:
    headers = show_ignored(DIALECT, request.ignored)
    background = make_background(draft, items, headers, streamed=bool(request.body.stream), waiting=waiting)
    writer = EventWriter(draft)
    return Ask(found.route, request.record, writer, streaming=True, background=background, fields=RESPONSES_FIELDS)


async def _retrieve(call: Call) -> Answer | StreamedAnswer:
    name = call.path["response"]
    found = await recall(call.kept, name)
    if call.query.get("stream", "").lower() not in {"true", "1"}:
        return Answer(found.response)
    return repeat_events(call.kept, name, found, call.query)


async def _cancel(call: Call) -> Answer:
    name = call.path["response"]
    found = await recall(call.kept, name)
    if not found.background:
        raise BadRequest("only a response with background: true is cancelled: to stop another, close its connection")
    return Answer(read_answer(await call.kept.cancel(name)).response)


async def _list_items(call: Call) -> Answer:
    name = call.path["response"]
    found = await recall(call.kept, name)
    return Answer(encode_page(found.items, name, call.query))


async def _delete(call: Call) -> Answer:
    name = call.path["response"]
    # Called only for its refusal, which has the words of this API.
    await recall(call.kept, name)
    await call.kept.erase(name)
    return Answer(encode(DeletedResponse(name)))


_ABOUT_KEPT: Final[Mapping[str, Callable[[Call], Awaitable[Answer | StreamedAnswer]]]] = {
    "retrieve": _retrieve,
    "input-items": _list_items,
    "delete": _delete,
    "cancel": _cancel,
}
RESPONSES: Final = Responses()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/v1/responses", RESPONSES, "create", large=True),
    Mount("GET", "/v1/responses", RESPONSES, "converse", socket=True),
    Mount("POST", "/v1/responses/input_tokens", RESPONSES, "input-tokens", large=True),
    Mount("POST", "/v1/responses/compact", RESPONSES, "compact", large=True),
    Mount("GET", "/v1/responses/{response}", RESPONSES, "retrieve"),
    Mount("DELETE", "/v1/responses/{response}", RESPONSES, "delete"),
    Mount("GET", "/v1/responses/{response}/input_items", RESPONSES, "input-items"),
    Mount("POST", "/v1/responses/{response}/cancel", RESPONSES, "cancel"),
)
"""Where OpenAI's Responses API is mounted."""
