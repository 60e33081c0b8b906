"""HTTP request -> dialect -> what the gateway does about it: ask a service."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tg_base.protocol import Route
from tg_gateway.dialects.answers import NOTHING_KEPT, Background, Keep, KeptAnswers
from tg_gateway.dialects.catalogue import Catalogue
from tg_gateway.dialects.field_names import FieldNames
from tg_gateway.dialects.writer import Writer
from tg_schema import TgError


@dataclass(slots=True)
class Call:
    """One HTTP request, as its dialect reads it.

    Attributes:
        operation: that of the mount; "" where no mount has this path and method.
        catalogue: all that can be asked for.
        headers: names in any case.
        path: the variables of the mount's path.
        query: the parameters behind `?`; of several with one name the first.
        request_id: the client's `X-Request-Id`, or ours; every answer has it in its head.
        body: empty until it has been read.
        route: the service, as soon as it is known; the dialect sets it, so that the log and the metrics of a refused
            request can name it. That of an `Ask` need not be set.
        kept: the answers that the request's key keeps; for what `parse` returns to be awaited.
    """

    operation: str
    catalogue: Catalogue
    headers: Mapping[str, str]
    path: Mapping[str, str]
    query: Mapping[str, str]
    request_id: str
    body: bytes = b""
    route: Route[Any, Any] | None = None
    kept: KeptAnswers = NOTHING_KEPT


@dataclass(frozen=True, slots=True)
class Batch:
    """Several requests for completions that one client's request is made of, asked side by side as there is room.

    The writer gets the records of all as they come, as if they were those of one answer: the `index` of a record is
    raised by `answers` for each request before its own, and the last record of all ends the answer. One that fails
    fails all, or, if they are `independent`, is told to the writer by a `FailedRequest` in place of its last record.

    Attributes:
        requests: at least one.
        answers: how many answers each of them has.
        independent: whether the others go on when one fails.
    """

    requests: tuple[Any, ...]
    answers: int = 1
    independent: bool = False


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """One of the independent requests of a batch has failed; nothing more comes of it.

    Attributes:
        index: that of its first answer.
        error: why.
        last: whether it was the last that had not ended.
    """

    index: int
    error: TgError
    last: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """A service has to be asked.

    Attributes:
        route: which one.
        request: its request record, or a `Batch` of them.
        writer: of the answer; made for this request alone.
        streaming: whether the answer's bytes leave as they are written, or as one body with its length.
        keep: over HTTP: the answer is kept before its last bytes leave; if that fails, so does the request.
        background: the answer is made apart from the connection, and `streaming` and `keep` are ignored.
        deadline: seconds until the answer must be complete, else it is stopped; None = the model's own limits. Like
            `on_accepted`, for single requests.
        on_accepted: called once if a processor works on the request and has not answered yet.
        on_opening: called once before `on_accepted`, if the processor opens the model for the request.
        fields: what the client calls the fields that a processor's error may name; None = as the record does.
    """

    route: Route[Any, Any]
    request: Any
    writer: Writer[Any]
    streaming: bool
    keep: Keep | None = None
    background: Background | None = None
    deadline: float | None = None
    on_accepted: Callable[[], None] | None = None
    on_opening: Callable[[], None] | None = None
    fields: FieldNames | None = None
