"""The body of a request -> the fields that the answer does not depend on."""

from collections.abc import Iterator

import msgspec

from tg_doors.tgi.generation_parameters import GenerateBody, GenerationParameters
from tg_schema import decode


def list_ignored(data: bytes, body: GenerateBody) -> Iterator[str]:
    """The names of the fields that are ignored: a watermark, which no model here makes, and those that nobody knows.

    Args:
        data: the JSON of `body`.
        body: what it says.
    """
    sent = decode(dict[str, msgspec.Raw], data)
    yield from sent.keys() - set(GenerateBody.__struct_fields__)
    if body.parameters is not None:
        given = decode(dict[str, msgspec.Raw], bytes(sent["parameters"]))
        yield from (f"parameters.{name}" for name in given.keys() - set(GenerationParameters.__struct_fields__))
        if body.parameters.watermark:
            yield "parameters.watermark"
