"""OpenAI's Batch API: the lines of a file, each a request to one of our paths, and their answers."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, Final, Literal

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from tg_gateway.dialects import ASKING, Answer, Call, Description, Mount, batches, pages
from tg_gateway.dialects.chat import Failure, OpenAiShaped, decode_body
from tg_schema import encode
from tg_schema.errors import BadRequest, NotFound

_describe = partial(Description, group="OpenAI batches", failure=Failure, raises=ASKING)
MAX_LINES: Final = 50_000
"""Most requests of one batch (OpenAI's number)."""
MAX_FAULTS: Final = 100
"""Most faults that are reported for one file."""
_OK: Final = 200
_FILES: Final = {"output": "completed", "error": "failed"}
"""The files that are made of a batch's results, and which lines they have."""
_STATUSES: Final = {"ended": "completed", "expired": "expired", "cancelled": "cancelled"} | dict.fromkeys(
    ("died", "too-large"), "failed"
)
_FAULTS: Final = (
    ("duplicate_custom_id", "The custom_id parameter must be unique for each request in a batch.", "custom_id"),
    ("mismatched_url", "The URL provided for this request does not match the batch endpoint.", "url"),
    ("invalid_method", "The method of each request must be POST.", "method"),
)
"""The fault of a line that repeats an id, names another path, or has another method."""


class BatchObject(msgspec.Struct, frozen=True, tag_field="object", tag="batch"):
    """A batch."""

    id: str
    endpoint: str
    input_file_id: str
    status: str
    created_at: int
    expires_at: int
    request_counts: dict[str, int]
    metadata: dict[str, str] | None
    errors: dict[str, tuple[batches.Fault, ...]] | None
    output_file_id: str | None = None
    error_file_id: str | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    completion_window: Literal["24h"] = "24h"


class BatchBody(msgspec.Struct, frozen=True):
    """A batch to begin."""

    input_file_id: str
    endpoint: Literal["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"]
    completion_window: Literal["24h"]
    metadata: dict[str, str] | None = None


_about_batch = partial(_describe, path={"batch": "batch_0123456789abcdef"}, answer=BatchObject)


class OpenAiBatches(OpenAiShaped):
    """`/v1/batches`."""

    parses_here = True
    descriptions: ClassVar[Mapping[str, Description]] = {
        "create": _describe(summary="Begin a batch of a file's lines", answer=BatchObject),
        "list": _describe(summary="List the batches", query=pages.PageQuery, answer=pages.Page[BatchObject]),
        "show": _about_batch(summary="Show a batch"),
        "cancel": _about_batch(summary="Cancel a batch"),
    }

    @override
    async def parse(self, call: Call) -> Answer:
        if not call.stores:
            raise BadRequest("nothing is kept for your key: ask without batches")
        store = call.batches
        if call.operation == "list":
            return Answer(encode(await batches.list_batches(store, "batch", call.query, _show_batch)))
        name = await _create_batch(call) if call.operation == "create" else call.path["batch"]
        if not name.startswith("batch_"):
            raise NotFound(f"No batch found with id '{name[:64]}'.")
        if call.operation == "cancel":
            await store.cancel(name)
        return Answer(encode(_show_batch(await store.find(name))))


async def _create_batch(call: Call) -> str:
    """The id of a new batch."""
    body = decode_body(BatchBody, call.body)
    lines, faults = await asyncio.to_thread(_read_lines, await call.batches.read(body.input_file_id), body.endpoint)
    head = batches.Head.begin("batch", body.endpoint, body.input_file_id, len(lines))
    await call.batches.begin(replace(head, metadata=body.metadata, faults=tuple(faults)))
    return head.id


def _show_batch(batch: batches.Stored) -> BatchObject:
    head, known = batch.head, batch.counts
    counts = {"total": head.total, "completed": known.completed, "failed": known.failed + known.unasked}
    running = "cancelling" if batch.cancelled else "in_progress" if batch.begun else "validating"
    status = _STATUSES.get(batch.outcome, running)
    faults = {"data": head.faults} if head.faults else None
    own = head.id, head.endpoint, head.input, status, head.created, head.deadline
    shown = BatchObject(*own, counts, head.metadata, faults, cancelling_at=batch.cancelled or None)
    if not batch.ended:
        return shown
    output, error = (f"file-{name}-{head.id}" if counts[kind] else None for name, kind in _FILES.items())
    return replace(shown, output_file_id=output, error_file_id=error, **{f"{status}_at": batch.ended})


def write_results(results: Sequence[batches.Result], outcome: str, name: str) -> bytes:
    """The file `output` or `error` of a batch."""
    return b"".join(_write(each, outcome) for each in results if (each.status == _OK) == (name == "output"))


def _write(result: batches.Result, outcome: str) -> bytes:
    response = {"status_code": result.status, "request_id": result.request_id, "body": result.body}
    error = {"code": f"batch_{outcome}", "message": f"The batch was {outcome} before this request."}
    told = {"response": response, "error": None} if result.status else {"response": None, "error": error}
    return encode({"id": f"batch_req_{result.request_id}", "custom_id": result.custom_id, **told}) + b"\n"


def _read_lines(data: bytes, endpoint: str) -> tuple[list[batches.Line], list[batches.Fault]]:
    """The lines of a batch for this path, and their faults."""
    lines, faults, seen = list[batches.Line](), list[batches.Fault](), set[str]()
    for number, line in batches.read_lines(data):
        if isinstance(line, BadRequest):
            faults.append(batches.Fault("invalid_json_line", line.message, number))
            continue
        wrong = (line.custom_id in seen, line.url != endpoint, line.method != "POST")
        for (code, sentence, param), is_so in zip(_FAULTS, wrong, strict=True):
            faults += [batches.Fault(code, sentence, number, param)] if is_so else []
        seen.add(line.custom_id)
        lines.append(line)
    if len(lines) > MAX_LINES:
        faults.append(batches.Fault("too_many_tasks", f"A batch has at most {MAX_LINES} requests."))
    return lines, faults[:MAX_FAULTS]


BATCHES: Final = OpenAiBatches()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/v1/batches", BATCHES, "create"),
    Mount("GET", "/v1/batches", BATCHES, "list"),
    Mount("GET", "/v1/batches/{batch}", BATCHES, "show"),
    Mount("POST", "/v1/batches/{batch}/cancel", BATCHES, "cancel"),
)
"""Where OpenAI's clients begin batches."""
