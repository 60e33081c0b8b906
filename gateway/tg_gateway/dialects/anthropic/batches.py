"""Anthropic's Message Batches API: many messages in one request, answered in their own time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Raw
from typing_extensions import override

from tg_gateway.dialects import ASKING, Answer, Call, Description, Dialect, Mount, batches, pages
from tg_gateway.dialects.anthropic.failures import MessageFailure, make_headers, refuse
from tg_schema import TgError, decode, encode
from tg_schema.errors import BadRequest, NotFound

ENDPOINT: Final = "/v1/messages"
MAX_PAGE: Final = 1_000
"""Batches that are listed at a time (Anthropic's number)."""
_KINDS: Final = ("processing", "succeeded", "errored", "canceled", "expired")
_describe = partial(Description, group="Anthropic batches", failure=MessageFailure, raises=ASKING)


class BatchedMessage(msgspec.Struct, frozen=True):
    """One request of a batch; `params` is the body of a message."""

    custom_id: batches.CustomId
    params: Raw


class BatchBody(msgspec.Struct, frozen=True):
    """A batch to begin."""

    requests: tuple[BatchedMessage, ...]


class PageQuery(msgspec.Struct, frozen=True):
    """Which part of a list: `after_id` or `before_id` an id."""

    after_id: str | None = None
    before_id: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = pages.DEFAULT_PAGE


class MessageBatch(msgspec.Struct, frozen=True, tag_field="type", tag="message_batch"):
    """A batch."""

    id: str
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: dict[str, int]
    created_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    results_url: str | None
    cancel_initiated_at: datetime | None
    archived_at: datetime | None = None


_about_batch = partial(_describe, path={"batch": "msgbatch_0123456789abcdef"}, answer=MessageBatch)


class MessageBatches(Dialect):
    """`/v1/messages/batches`."""

    parses_here = True
    descriptions: ClassVar[Mapping[str, Description]] = {
        "create": _describe(
            summary="Begin a batch of messages",
            body=BatchBody,
            answer=MessageBatch,
            examples={
                "one": {
                    "requests": [
                        {
                            "custom_id": "a",
                            "params": {
                                "model": "tinydemo",
                                "max_tokens": 16,
                                "messages": [{"role": "user", "content": "Hello"}],
                            },
                        }
                    ]
                }
            },
        ),
        "list": _describe(summary="List the batches of messages", query=PageQuery, answer=pages.Page[MessageBatch]),
        "show": _about_batch(summary="Show a batch of messages"),
        "cancel": _about_batch(summary="Cancel a batch of messages"),
        "delete": _about_batch(summary="Delete a batch of messages", answer=dict[str, str]),
        "results": _about_batch(
            summary="Read the results of a batch", answer=dict[str, Any], media="application/x-jsonl"
        ),
    }

    @override
    async def parse(self, call: Call) -> Answer:
        if not call.stores:
            raise BadRequest("nothing is kept for your key: ask without batches")
        store, headers = call.batches, make_headers(call.request_id)
        if call.operation == "list":
            page = await batches.list_batches(store, "msgbatch", call.query, _show, MAX_PAGE)
            return Answer(encode(page), headers=headers)
        name = await _begin(call) if call.operation == "create" else call.path["batch"]
        if not name.startswith("msgbatch_"):
            raise NotFound(f"no batch has the id {name[:64]!r}")
        if call.operation == "cancel":
            await store.cancel(name)
        batch = await store.find(name)
        if call.operation in {"delete", "results"} and not batch.ended:
            raise BadRequest("the batch has not ended: wait for it, or cancel it before")
        if call.operation == "results":
            results = _write_results(await store.read_results(name), batch.outcome)
            return Answer(results, content_type="application/x-jsonl", headers=headers)
        if call.operation == "delete":
            await store.erase(name)
            await store.erase(batch.head.input)
            return Answer(encode({"id": name, "type": "message_batch_deleted"}), headers=headers)
        return Answer(encode(_show(batch)), headers=headers)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return refuse(error, status, call.request_id)


async def _begin(call: Call) -> str:
    """The id of a new batch."""
    requests = decode(BatchBody, call.body).requests
    if not requests:
        raise BadRequest("requests: a batch has at least one")
    seen = Counter(each.custom_id for each in requests)
    if repeated := [name for name, times in seen.items() if times > 1]:
        raise BadRequest(f"requests: custom_id must be unique, and {repeated[0][:64]!r} is there more than once")
    # Its own line breaks would end the line.
    found = [(each.custom_id, Raw(msgspec.json.format(each.params, indent=-1))) for each in requests]
    lines = [encode(batches.Line(name, body, ENDPOINT)) for name, body in found]
    data = b"\n".join(lines)
    file = batches.File.begin("input", len(data), "", "batch")
    await call.batches.put(file, data)
    head = batches.Head.begin("msgbatch", ENDPOINT, file.id, len(lines))
    await call.batches.begin(head)
    return head.id


def _show(batch: batches.Stored) -> MessageBatch:
    head, ended, counts = batch.head, batch.ended, batch.counts
    # Anthropic counts nothing before the end.
    kinds = {"processing": head.total}
    if ended:
        kinds = {"succeeded": counts.completed, "errored": counts.failed, _find_kind(0, batch.outcome): counts.unasked}
    return MessageBatch(
        head.id,
        "ended" if ended else "canceling" if batch.cancelled else "in_progress",
        {kind: kinds.get(kind, 0) for kind in _KINDS},
        datetime.fromtimestamp(head.created, UTC),
        datetime.fromtimestamp(head.deadline, UTC),
        datetime.fromtimestamp(ended, UTC) if ended else None,
        f"{ENDPOINT}/batches/{head.id}/results" if ended else None,
        datetime.fromtimestamp(batch.cancelled, UTC) if batch.cancelled else None,
    )


def _find_kind(status: int, outcome: str) -> str:
    if status:
        return "succeeded" if status == 200 else "errored"
    return "canceled" if outcome == "cancelled" else "expired"


def _write_results(results: Sequence[batches.Result], outcome: str) -> bytes:
    lines = list[bytes]()
    for each in results:
        kind = _find_kind(each.status, outcome)
        content = {"succeeded": {"message": each.body}, "errored": {"error": each.body}}.get(kind, {})
        lines.append(encode({"custom_id": each.custom_id, "result": {"type": kind, **content}}))
    return b"\n".join(lines)


BATCHES: Final = MessageBatches()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/v1/messages/batches", BATCHES, "create", large=True),
    Mount("GET", "/v1/messages/batches", BATCHES, "list"),
    Mount("GET", "/v1/messages/batches/{batch}", BATCHES, "show"),
    Mount("GET", "/v1/messages/batches/{batch}/results", BATCHES, "results"),
    Mount("POST", "/v1/messages/batches/{batch}/cancel", BATCHES, "cancel"),
    Mount("DELETE", "/v1/messages/batches/{batch}", BATCHES, "delete"),
)
"""Where Anthropic's clients begin batches."""
