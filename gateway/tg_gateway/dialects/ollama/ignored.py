"""The body of a request -> the fields and options that the answer does not depend on."""

from collections.abc import Iterator

import msgspec

from tg_gateway.dialects.ollama.bodies import Options
from tg_schema import decode


class _WithOptions(msgspec.Struct, frozen=True):
    options: dict[str, msgspec.Raw] | None = None


def list_ignored(data: bytes, kind: type[msgspec.Struct]) -> Iterator[str]:
    """The names of ignored fields; options of the engine, such as `num_gpu`, as `options.num_gpu`.

    Args:
        data: the JSON of a body.
        kind: what it was read as.
    """
    known = set(kind.__struct_fields__)
    yield from decode(dict[str, msgspec.Raw], data).keys() - known - {"options"}
    options = decode(_WithOptions, data).options or {}
    used = set(Options.__struct_fields__) if "options" in known else set[str]()
    yield from (f"options.{name}" for name in options.keys() - used)
