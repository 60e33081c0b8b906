"""JSON schema -> check of what a model answered. No reference ever leaves the process."""

from typing import Any

import jsonschema_rs

_PATH = 200
"""Characters of a path that an error shows."""


class BadSchema(Exception):
    """The schema itself is wrong.

    Attributes:
        message: how.
        path: the keys of the wrong value in the schema, where known.
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
            self._validator = jsonschema_rs.validator_for(schema, offline=True)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            path = tuple(map(str, getattr(error, "instance_path", ())))
            place = (
                f"at {'.'.join(path)[:_PATH]}" if path else "or it refers to another document (only #... is followed)"
            )
            raise BadSchema(f"not a valid JSON schema, {place}", path) from None

    def fault(self, value: Any) -> str | None:
        """What is wrong with a value, in our words and without its content; None = nothing."""
        error = next(self._validator.iter_errors(value), None)
        if error is None:
            return None
        path = "/".join(map(str, error.instance_path))[:_PATH]
        return f'{path or "the object"} breaks the rule "{error.kind.name}"'
