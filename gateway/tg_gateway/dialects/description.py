"""Dialect -> the gateway's OpenAPI document: one operation's requests and answers, by the types that parse them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tg_schema import TgError, errors

ASKING: Final[tuple[type[TgError], ...]] = (
    *(errors.BadRequest, errors.NotFound, errors.TooLarge, errors.ContentFilter, errors.RateLimited),
    *(errors.Internal, errors.Timeout, errors.ProviderAuth, errors.ProtocolError, errors.SchemaViolation),
    *(errors.IncompleteStream, errors.Unavailable, errors.SlowConsumer, errors.BusError, errors.PeerError),
)
"""The errors that a request to a service may end with."""
EVENTS: Final = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One operation of a dialect.

    The types are those that read the request and make the answer; a tuple stands for any of its types.

    Attributes:
        group: the heading under which the operation stands.
        summary: what it does, in a few words.
        failure: the JSON of a refusal.
        body: the JSON of the request; None = it has none.
        required: fields of the body without which the request is refused, although its type has a default.
        answer: the JSON of a whole answer; None = it has no body, or there are events alone.
        media: the answer's content type.
        events: the content type of a streamed answer; "" = it cannot be streamed.
        event: the JSON of each event, or of each line.
        done: the data of a last event that is no JSON; "" = there is none.
        further: other content types that an answer may have, each with the JSON of its lines; None = it is no JSON.
        query: a struct with the parameters behind `?`.
        messages: for a WebSocket, the type of the JSON of each message that clients send, by the word before it.
        path: an example of each variable of the path.
        examples: bodies that are answered by 200, by name. The model of `model`, where they have one, is the demo's.
        statuses: of answers that are no refusals; (501,) for what the protocol has and the gateway has not.
        raises: the errors of the operation itself; those of the gateway (key, size, time) come on top.
    """

    group: str
    summary: str
    failure: Any
    body: Any = None
    required: tuple[str, ...] = ()
    answer: Any = None
    media: str = "application/json"
    events: str = ""
    event: Any = None
    done: str = ""
    further: Mapping[str, Any] = field(default_factory=dict)
    query: Any = None
    messages: Mapping[str, Any] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    statuses: tuple[int, ...] = (200,)
    raises: tuple[type[TgError], ...] = ()
