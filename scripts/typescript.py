"""The schema's records -> `cli/ts/records.d.ts`, the types of the TypeScript client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from tg_gateway.dialects.native.request_bodies import PromptBody
from tg_schema import AgentRequest, AgentResponse, PromptResponse, TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import TgError
from tg_schema.served_model import ServedModels

RECORDS: Final = Path(__file__).parent.parent / "cli" / "ts" / "records.d.ts"
_ASKED: Final = (TextCompletionRequest, PromptBody, AgentRequest)
_ANSWERED: Final = (TextCompletionResponse, PromptResponse, AgentResponse, ServedModels)
_HEAD: Final = "// Written by scripts/typescript.py from schema/tg_schema: do not edit.\n"
_SIMPLE: Final = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def list_errors(root: type[TgError] = TgError) -> Iterator[type[TgError]]:
    """Each class of the closed set of errors."""
    for kind in root.__subclasses__():
        yield kind
        yield from list_errors(kind)


def write_types() -> str:
    """The whole file."""
    _, components = msgspec.json.schema_components((*_ASKED, *_ANSWERED), ref_template="{name}")
    names = " | ".join(f'"{name}"' for name in sorted({kind.type for kind in list_errors()}))
    declared = [_declare(name, component) for name, component in sorted(components.items())]
    return "\n".join([_HEAD, f"export type ErrorType = {names};\n", *declared])


def _declare(name: str, component: dict[str, Any]) -> str:
    said = component.get("description", "").split("\n")[0]
    comment = f"/** {said} */\n" if said else ""
    required = component.get("required", ())
    fields = (
        f"  {field}{'' if field in required else '?'}: {_type_of(schema)};\n"
        for field, schema in component["properties"].items()
    )
    return f"{comment}export interface {name} {{\n{''.join(fields)}}}\n"


def _type_of(schema: Any) -> str:
    match schema:
        case bool():
            written = "unknown"
        case {"$ref": name}:
            written = str(name)
        case {"anyOf": kinds}:
            written = " | ".join(dict.fromkeys(map(_type_of, kinds)))
        case {"enum": values}:
            written = " | ".join(f'"{value}"' for value in values)
        case {"type": "array", "items": items}:
            written = f"readonly ({_type_of(items)})[]"
        case {"type": "object"}:
            written = f"{{[name: string]: {_type_of(schema.get('additionalProperties', {}))}}}"
        case _:
            written = _SIMPLE.get(schema.get("type", ""), "unknown")
    return written


if __name__ == "__main__":
    RECORDS.write_text(write_types(), "utf-8")
