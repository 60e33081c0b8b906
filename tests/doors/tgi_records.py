"""Records of an answer, and what TGI's writers make of them."""

import json
from collections.abc import Sequence
from typing import Any

from tg_doors.tgi.dialect import GeneratedTextWriter, TokenEventWriter
from tg_doors.tgi.generation_parameters import GenerateBody, GenerationParameters
from tg_doors.tgi.timings import Timings
from tg_schema import TextCompletionResponse, Token

Record = TextCompletionResponse


LAST = Record(finish_reason="stop", in_token=3, out_token=2, end_of_stream=True)


A = Token(7, "a", -0.5)


B = Token(8, "b", -1.5, ((8, -1.5), (9, -2.0)), ("b", "c"))


HALVES = (Token(20, "\ufffd", -1.0, raw_bytes=b"\xe2\x82"), Token(21, "\ufffd", -2.0, raw_bytes=b"\xac"))


END = Token(2, "</s>", -0.1, special=True)


def body_of(**parameters: Any) -> GenerateBody:
    return GenerateBody(inputs="in ", parameters=GenerationParameters(**parameters))


def stream(records: Sequence[Record], **parameters: Any) -> list[str]:
    """The data of all events."""
    writer = TokenEventWriter(body_of(**parameters))
    data = b"".join(writer.write(record) for record in records) + writer.end()
    *events, rest = data.decode().split("\n\n")
    assert rest == ""
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [event[6:] for event in events]


def whole(records: Sequence[Record], *, listed: bool = False, **parameters: Any) -> Any:
    writer = GeneratedTextWriter(body_of(**parameters), Timings(), listed=listed)
    assert b"".join(writer.write(record) for record in records) == b""
    return json.loads(writer.end())
