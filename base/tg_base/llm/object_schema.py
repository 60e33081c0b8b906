"""JSON schema -> validation of a model's answer. References to other documents are never resolved.

Small checks run here, others in a worker process, which is killed if they take too long: a small schema can mean years
of work, and nothing can stop that within this process.
"""

import resource
import signal
import sys
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs
import msgspec

from tg_base.llm.schema_cost import SchemaCost
from tg_base.runtime import WorkerEnded, WorkerPool
from tg_schema.codec import decode_json
from tg_schema.errors import BadRequest

CHECK_SECONDS = 5.0
"""CPU time of a check in a worker process; its caller waits as long as for any other call."""
MAX_CHECK_BYTES: Final = 1024**3
"""Bytes of memory of such a process."""
QUICK_STEPS: Final = 1_000_000
"""Steps of a check that is made here: a few milliseconds."""
QUICK_FAULT_STEPS: Final = 2000
"""Steps of such a check for an invalid value: to say why it is invalid, the library first collects the reasons of all
alternatives."""
_MAX_PATH_CHARACTERS = 200
"""Maximum length of a path in an error, in characters."""
_TOO_MUCH: Final = "a check against this schema takes too much work; use fewer references, alternatives and patterns"
_NOTHING: Final = b"null"


class BadSchema(BadRequest):
    """The schema itself is invalid.

    Attributes:
        path: the keys of the invalid value within the schema, if known.
    """

    def __init__(self, message: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class ObjectSchema:
    """A schema.

    Args:
        schema: a JSON schema.
        trusted: whether the schema is from the configuration, so that it may be compiled here at any cost.

    Raises:
        BadSchema: it takes too much work, or (if compiled here) is not a JSON schema, or refers to another document.
        RecursionError: it is nested too deep.
        UnicodeEncodeError: it has a text that is not Unicode.
    """

    def __init__(self, schema: dict[str, Any], *, trusted: bool = False) -> None:
        self._data = msgspec.json.encode(schema)
        self._cost = SchemaCost(schema, len(self._data))
        if self._cost.too_large:
            raise BadSchema(_TOO_MUCH)
        self._validator = _compile(schema) if trusted or self._cost.quick else None

    async def check(self, workers: WorkerPool) -> None:
        """Compile the schema in another process, if that may take long.

        Raises:
            BadSchema: it is not a JSON schema, refers to another document, or takes too much work.
        """
        if self._validator is None:
            await self._find_elsewhere(_NOTHING, workers)

    async def fault(self, value: Any, workers: WorkerPool) -> str | None:
        """Why a value is invalid, without quoting its content; None = it is valid.

        Raises:
            BadSchema: the check takes too much work.
        """
        data = msgspec.json.encode(value)
        steps = self._cost.of(data)
        if self._validator is not None and steps <= QUICK_STEPS:
            if self._validator.is_valid(value):
                return None
            if steps <= QUICK_FAULT_STEPS:
                return _find_fault(self._validator, value)
        return await self._find_elsewhere(data, workers)

    async def _find_elsewhere(self, value: bytes, workers: WorkerPool) -> str | None:
        try:
            return await workers.call(_find_here, self._data, value, CHECK_SECONDS)
        except WorkerEnded:
            raise BadSchema(_TOO_MUCH) from None


def close_objects(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose objects have no other properties than the declared ones, unless it says so itself.

    For providers that enforce only such schemas. Any value that satisfies the result satisfies the schema too.
    """
    closed: dict[str, Any] = decode_json(msgspec.json.encode(schema))
    # Do not recurse: a schema may be nested as deeply as its JSON can be read.
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


def _compile(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    try:
        # Offline: a client's schema with a remote $ref would otherwise make this process fetch any URL.
        return jsonschema_rs.validator_for(schema, offline=True)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        path = tuple(map(str, getattr(error, "instance_path", ())))
        place = (
            f"at {'.'.join(path)[:_MAX_PATH_CHARACTERS]}"
            if path
            else "or it refers to another document (only #... is followed)"
        )
        raise BadSchema(f"not a valid JSON schema, {place}", path) from None


def _find_fault(validator: jsonschema_rs.Validator, value: Any) -> str | None:
    try:
        # Do not use `iter_errors`, which finds all errors before it yields the first.
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        path = "/".join(map(str, error.instance_path))[:_MAX_PATH_CHARACTERS]
        return f'{path or "the object"} breaks the rule "{error.kind.name}"'
    return None


@lru_cache(maxsize=64)
def _compile_here(schema: bytes) -> jsonschema_rs.Validator:
    read: Any = decode_json(schema)
    if SchemaCost(read, len(schema), sys.maxsize).too_large:
        raise BadSchema(_TOO_MUCH)
    return _compile(read)


def _find_here(schema: bytes, value: bytes, seconds: float) -> str | None:
    """`ObjectSchema.fault` in a worker process. The system ends the process at its limits of CPU time and memory."""
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    bound = MAX_CHECK_BYTES if most == resource.RLIM_INFINITY else min(MAX_CHECK_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (bound, most))
    # Nothing in the process would interrupt the library. The limit is CPU time: a busy machine must not fail a check.
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        return _find_fault(_compile_here(schema), decode_json(value))
    except MemoryError:
        raise BadSchema(_TOO_MUCH) from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
