"""What providers demand of a schema that they enforce while the model writes: what breaks it is refused with 400."""

from typing import Any

import msgspec


def check_enforceable(schema: dict[str, Any], *, all_required: bool) -> None:
    """See that each object names all that it may have; with `all_required` also that nothing of it is optional.

    Sources: OpenAI's and Anthropic's guides to structured outputs, and Amazon Bedrock's.
    """
    parts: list[Any] = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, dict) and part.get("type") == "object":
            if part.get("additionalProperties") is not False:
                raise msgspec.ValidationError("In context=(), 'additionalProperties' is required to be false.")
            if all_required and set(part.get("required", ())) != set(part.get("properties", {})):
                raise msgspec.ValidationError("In context=(), 'required' must include every key in properties.")
        parts.extend(part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())
