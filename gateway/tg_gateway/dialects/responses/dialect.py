"""OpenAI's Responses API: parse, answer and refuse; and what is asked of responses that are kept."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Answer, Ask, Call, Conversation, Dialect, Socket, Writer, show_ignored
from tg_gateway.dialects.openai import InvalidParameter, refuse
from tg_gateway.dialects.responses.compaction import CompactionWriter, make_compaction, read_compaction
from tg_gateway.dialects.responses.conversation import ResponsesConversation
from tg_gateway.dialects.responses.input_list import encode_page
from tg_gateway.dialects.responses.kept_response import make_keep, recall, recall_items, repeat_events
from tg_gateway.dialects.responses.request import DIALECT, list_items, make_count, make_request, read_body
from tg_gateway.dialects.responses.request_body import InputItem, RequestBody
from tg_gateway.dialects.responses.response_draft import ResponseDraft
from tg_gateway.dialects.responses.writers import BodyWriter, CountWriter, EventWriter, KeptEventWriter
from tg_schema import TextCompletionResponse, TgError, encode
from tg_schema.errors import NotFound

CREATE, COUNT, COMPACT, CONVERSE = "create", "input-tokens", "compact", "converse"
RETRIEVE, DELETE, LIST_ITEMS, CANCEL = "retrieve", "delete", "input-items", "cancel"
"""The operations of the mounts."""


class Responses(Dialect):
    """`POST /v1/responses`, whole and streamed, what is counted and compacted, and responses that are kept."""

    @override
    def check_head(self, call: Call) -> None:
        if call.operation == CANCEL:
            raise NotFound("nothing runs in the background here: to cancel a response, close its connection")

    @override
    def parse(self, call: Call) -> Ask | Answer | Awaitable[Ask | Answer]:
        if (answer := _ABOUT_KEPT.get(call.operation)) is not None:
            return answer(call)
        body = read_compaction(call.body) if call.operation == COMPACT else read_body(call.body)
        previous = body.previous_response_id
        return _make_ask(call, body) if previous is None else _go_on(call, body, previous)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        about_field = call.operation in {CREATE, COUNT, COMPACT} or isinstance(error, InvalidParameter)
        return refuse(error, status, known_path=about_field)

    @override
    def converse(self, socket: Socket) -> Conversation:
        return ResponsesConversation(socket)


async def _go_on(call: Call, body: RequestBody, previous: str) -> Ask:
    return _make_ask(call, body, await recall_items(call.kept, previous))


def _make_ask(call: Call, body: RequestBody, earlier: tuple[InputItem, ...] = ()) -> Ask:
    items = (*earlier, *list_items(body))
    if earlier:
        body = msgspec.structs.replace(body, input=items)
    found = call.catalogue.find_model(body.model)
    call.route = found.route
    if call.operation == COMPACT:
        summary = make_compaction(body, items, found, len(earlier))
        return Ask(found.route, summary, CompactionWriter(call.body), streaming=False)
    request = make_request(call.body, body, found, len(earlier))
    if call.operation == COUNT:
        return Ask(found.route, make_count(request), CountWriter(), streaming=False)
    draft = ResponseDraft(request, found.model or body.model or "")
    headers = show_ignored(DIALECT, request.ignored)
    events: list[bytes] = []
    writer: Writer[TextCompletionResponse]
    if body.stream and body.store:
        kept_writer = KeptEventWriter(draft, headers)
        writer, events = kept_writer, kept_writer.events
    else:
        writer = EventWriter(draft, headers) if body.stream else BodyWriter(draft, headers)
    keep = make_keep(draft, items, events) if body.store else None
    return Ask(found.route, request.record, writer, streaming=bool(body.stream), keep=keep)


async def _retrieve(call: Call) -> Answer:
    found = await recall(call.kept, call.path["response"])
    if call.query.get("stream", "").lower() not in {"true", "1"}:
        return Answer(bytes(found.response))
    return Answer(repeat_events(found, call.query), content_type=EventWriter.content_type)


async def _list_items(call: Call) -> Answer:
    name = call.path["response"]
    found = await recall(call.kept, name)
    return Answer(encode_page(found.items, name, call.query))


async def _delete(call: Call) -> Answer:
    name = call.path["response"]
    await recall(call.kept, name)
    await call.kept.erase(name)
    return Answer(encode(_Deleted(name)))


class _Deleted(msgspec.Struct, frozen=True):
    id: str
    object: str = "response"
    deleted: bool = True


_ABOUT_KEPT: Final[Mapping[str, Callable[[Call], Awaitable[Answer]]]] = {
    RETRIEVE: _retrieve,
    LIST_ITEMS: _list_items,
    DELETE: _delete,
}
RESPONSES: Final = Responses()
