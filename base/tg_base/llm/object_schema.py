"""JSON schema -> validation of a model's answer. References to other documents are never resolved."""

from typing import Any

import jsonschema_rs

from tg_schema import encode
from tg_schema.codec import decode_json

_MAX_PATH_CHARACTERS = 200
"""Maximum length of a path in an error, in characters."""


class BadSchema(Exception):
    """The schema itself is invalid.

    Attributes:
        message: the reason.
        path: the keys of the invalid value within the schema, if known.
    """

    def __init__(self, message: str, path: tuple[str, ...]) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


class ObjectSchema:
    """A compiled schema.

    Raises:
        BadSchema: it is not a JSON schema, or refers to another document.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        try:
            # Offline: a client's schema with a remote $ref would otherwise make this process fetch any URL.
            self._validator = jsonschema_rs.validator_for(schema, offline=True)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            path = tuple(map(str, getattr(error, "instance_path", ())))
            place = (
                f"at {'.'.join(path)[:_MAX_PATH_CHARACTERS]}"
                if path
                else "or it refers to another document (only #... is followed)"
            )
            raise BadSchema(f"not a valid JSON schema, {place}", path) from None

    def fault(self, value: Any) -> str | None:
        """Why a value is invalid, without quoting its content; None = it is valid."""
        error = next(self._validator.iter_errors(value), None)
        if error is None:
            return None
        path = "/".join(map(str, error.instance_path))[:_MAX_PATH_CHARACTERS]
        return f'{path or "the object"} breaks the rule "{error.kind.name}"'


def close_objects(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose objects have no other properties than the declared ones, unless it says so itself.

    For providers that enforce only such schemas. What satisfies the result satisfies the schema too.
    """
    closed: dict[str, Any] = decode_json(encode(schema))
    # Not recursive: a schema may be nested as deep as its JSON can be read.
    parts: list[Any] = [closed]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if part.get("type") == "object":
                part.setdefault("additionalProperties", False)
            parts.extend(part.values())
        elif isinstance(part, list):
            parts.extend(part)
    return closed
