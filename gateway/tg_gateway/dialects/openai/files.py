"""Files over HTTP, which OpenAI's SDKs upload for batches, and in which they read the results."""

import re
from collections.abc import Mapping
from email import message_from_string
from functools import partial
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from typing_extensions import override

from tg_gateway.dialects import ASKING, Answer, Call, Description, InvalidParameter, Mount, batches, pages
from tg_gateway.dialects.chat import Failure, OpenAiShaped
from tg_gateway.dialects.openai.batches import write_results
from tg_schema import decode, encode
from tg_schema.errors import BadRequest, NotFound

_describe = partial(Description, group="OpenAI files", failure=Failure, raises=ASKING)
_MADE: Final = re.compile(r"file-(output|error)-(batch_.+)")
"""The id of a file that is made of a batch's results: such a file has no log of its own."""

MAX_PAGE: Final = 10_000
"""Files that are listed at a time (OpenAI's number)."""
MAX_PIECES: Final = 16
MAX_HEAD_BYTES: Final = 4096
"""Most bytes of an upload's form besides the file."""


class FileQuery(msgspec.Struct, frozen=True):
    """Which part of the list: `after` an id, and of one purpose."""

    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = MAX_PAGE
    order: Literal["asc", "desc"] = "desc"
    purpose: str | None = None


_about_file = partial(_describe, path={"file": "file-0123456789abcdef"})


class OpenAiFiles(OpenAiShaped):
    """`/v1/files`."""

    parses_here = True
    descriptions: ClassVar[Mapping[str, Description]] = {
        "create": _describe(summary="Keep a file", answer=batches.File),
        "list": _describe(summary="List the files", query=FileQuery, answer=pages.Page[batches.File]),
        "show": _about_file(summary="Show a file", answer=batches.File),
        "read": _about_file(summary="Read a file", answer=bytes, media="application/octet-stream"),
        "delete": _about_file(summary="Delete a file", answer=dict[str, str | bool]),
    }

    @override
    async def parse(self, call: Call) -> Answer:
        if not call.stores:
            raise BadRequest("nothing is kept for your key: ask without files")
        if call.operation == "create":
            return Answer(encode(await _create(call)))
        if call.operation == "list":
            return Answer(encode(await _list(call)))
        file, made = await _find(call)
        if call.operation == "show":
            return Answer(encode(file))
        if call.operation == "read":
            data = await call.batches.read(file.id) if made is None else made
            return Answer(data, content_type="application/octet-stream")
        if made is not None:
            raise BadRequest("the file is made of the results of a batch, and is kept as long as they are")
        await call.batches.erase(file.id)
        return Answer(encode({"id": file.id, "object": "file", "deleted": True}))


async def _create(call: Call) -> batches.File:
    fields = _read_upload(call.body, call.headers.get("Content-Type", ""))
    filename, purpose = (fields[name].decode("utf-8", "replace") for name in ("filename", "purpose"))
    file = batches.File.begin("file", len(fields["file"]), filename, purpose)
    await call.batches.put(file, fields["file"])
    return file


def _read_upload(body: bytes, content_type: str) -> dict[str, bytes]:
    """The fields `file`, `purpose` and `filename` of an upload.

    Raises:
        BadRequest: it is no form.
        InvalidParameter: a field is missing.
    """
    boundary = message_from_string(f"Content-Type: {content_type}").get_boundary()
    if not boundary:
        raise BadRequest("send the file as multipart/form-data, with the fields file and purpose")
    fields = {"filename": b"file"}
    limit = b"\r\n--" + boundary.encode("utf-8", "surrogateescape")
    # Libraries read forms line by line, twenty times slower: one reads the heads alone. The first piece comes before
    # the form, the last one after it.
    for piece in (b"\r\n" + body).split(limit, MAX_PIECES)[1:-1]:
        head, _, data = piece.partition(b"\r\n\r\n")
        part = message_from_string(head[:MAX_HEAD_BYTES].decode("utf-8", "replace").lstrip())
        fields[str(part.get_param("name", "", "content-disposition"))] = data
        fields["filename"] = (part.get_filename() or fields["filename"].decode()).encode()
    if missing := [field for field in ("file", "purpose") if not fields.get(field)]:
        raise InvalidParameter(f"{missing[0]} is missing", missing[0], "missing_required_parameter")
    return fields


async def _list(call: Call) -> pages.Page[batches.File]:
    files = [decode(batches.File, head) for head in (await call.batches.list("file")).values()]
    files = [file for file in files if call.query.get("purpose", file.purpose) == file.purpose]
    return pages.find_page(files, [file.id for file in files], call.query, most=MAX_PAGE, default=MAX_PAGE)


async def _find(call: Call) -> tuple[batches.File, bytes | None]:
    """A file, and its bytes if it is made of the results of a batch."""
    name = call.path["file"]
    if found := _MADE.fullmatch(name):
        batch = await call.batches.find(found[2])
        results = await call.batches.read_results(found[2]) if batch.ended else ()
        if data := write_results(results, batch.outcome, found[1]):
            filename, expires = f"{found[2]}_{found[1]}.jsonl", batch.head.created + batches.FILE_SECONDS
            return batches.File(name, len(data), filename, "batch_output", batch.ended, expires), data
    head = (await call.batches.list("file")).get(name)
    if head is None:
        raise NotFound(f"No such File object: {name[:64]}")
    return decode(batches.File, head), None


FILES: Final = OpenAiFiles()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/v1/files", FILES, "create", large=True),
    Mount("GET", "/v1/files", FILES, "list"),
    Mount("GET", "/v1/files/{file}", FILES, "show"),
    Mount("GET", "/v1/files/{file}/content", FILES, "read"),
    Mount("DELETE", "/v1/files/{file}", FILES, "delete"),
)
"""Where OpenAI's clients keep files."""
