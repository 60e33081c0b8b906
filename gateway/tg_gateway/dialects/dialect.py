"""Protocol -> gateway: what a dialect can do, where it is mounted, and what its operations are."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from tg_base.config import GatewayConfig
from tg_gateway.dialects.background import Answer, StreamedAnswer
from tg_gateway.dialects.call import Ask, Call
from tg_gateway.dialects.conversation import Conversation, Socket
from tg_gateway.dialects.writer import Writer
from tg_schema import TgError, errors
from tg_schema.errors import BadRequest

ASKING: Final[tuple[type[TgError], ...]] = (
    *(errors.BadRequest, errors.NotFound, errors.TooLarge, errors.ContentFilter, errors.RateLimited),
    *(errors.Internal, errors.Timeout, errors.ProviderAuth, errors.ProtocolError, errors.SchemaViolation),
    *(errors.IncompleteStream, errors.Unavailable, errors.SlowConsumer, errors.BusError, errors.PeerError),
)
"""The errors with which a request to a service may end."""
EVENTS: Final = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One operation of a dialect.

    The types are those that parse the request and encode the answer; a tuple allows any of its types.

    Attributes:
        group: the heading under which the operation is listed.
        summary: what it does, in a few words.
        failure: the JSON of a refusal.
        body: the JSON of the request; None = it has none.
        required: fields of the body without which the request is refused, although its type has a default.
        answer: the JSON of a whole answer; None = it has no body, or there are events alone.
        media: the answer's content type.
        events: the content type of a streamed answer; "" = it cannot be streamed.
        event: the JSON of each event, or of each line.
        done: the data of a final event that is not JSON; "" = there is none.
        further: other content types that an answer may have, each with the JSON of its lines; None = it is no JSON.
        query: a struct with the parameters behind `?`.
        messages: for a WebSocket, the type of the JSON of each message that clients send, by the word before it.
        path: an example of each variable of the path.
        examples: bodies that are answered by 200, by name. Their `model`, if they have one, is the demo's.
        statuses: the statuses of answers that are not refusals; (501,) for an operation of the protocol that the
            gateway lacks.
        raises: the errors of the operation itself; the gateway's own (key, size, time) are added.
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


class Dialect(ABC):
    """One protocol: how requests are parsed, answered and refused. It has no state; a request's state is in its writer.

    Attributes:
        precedence: if an unknown path resembles the rows of several dialects equally, or no row at all, the dialect
            with the greatest precedence refuses it.
        parses_here: whether its requests are read in this process, however large they are, since they are stored and
            hardly parsed.
        descriptions: descriptions of its operations, for the gateway's OpenAPI document.
    """

    precedence: ClassVar[int] = 0
    parses_here: ClassVar[bool] = False
    descriptions: ClassVar[Mapping[str, Description]] = {}

    def configure(self, config: GatewayConfig) -> "Dialect":
        """This protocol as an operator has configured it; `config.door(kind)` is the table of its door. Most have none.

        Raises:
            BadRequest: a value of the configuration is wrong; `option` has its keys within the gateway's table.
        """
        return self

    def check_head(self, call: Call) -> None:  # noqa: B027 - most protocols need nothing of it
        """Refuse a request whose head alone shows that it is wrong. `call.body` is still empty.

        Raises:
            TgError: as `parse`.
        """

    @abstractmethod
    def parse(self, call: Call) -> Ask | Answer | Awaitable[Ask | Answer | StreamedAnswer]:
        """What a request asks for; an awaitable of it if that depends on kept answers (`call.kept`).

        A door that asks a model:

            body = decode(Talk, call.body)
            found = call.catalogue.find_model(body.voice)
            request = TextCompletionRequest(prompt=body.say, model=found.model, streaming=True)
            return Ask(found.route, request, TalkWriter(), True)

        Raises:
            TgError: the request is wrong; the message says how. `refuse` turns it into this protocol's answer.
        """

    def abridge(self, body: bytes) -> bytes:
        """The part of a large body that `refuse` needs, since the body is not kept; empty if it needs none.

        Called in the process that parsed the body. Most refusals do not depend on it.
        """
        return b""

    @abstractmethod
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        """The answer to a request that failed before its first byte.

        Args:
            error: the reason. The caller sends its `retry_after` as a header.
            status: the HTTP status: 401 without a right key, 404 for an unknown path, 405 and 413 among
                others.
            call: the facts about the request. Its body is empty if it was refused unread; for a large body that was
                parsed, it is what `abridge` returned.
        """

    def restore(self, form: bytes) -> Writer[Any]:
        """A writer that writes a kept stream again, exactly as the writer with this form wrote it.

        Args:
            form: the JSON of `Writer.form`.

        Raises:
            BadRequest: this dialect does not have the form.
        """
        raise BadRequest("no stream of this protocol is kept")

    def converse(self, socket: Socket) -> Conversation:
        """The conversation of a new WebSocket, for mounts that are sockets.

        Raises:
            NotImplementedError: the protocol has no WebSocket.
        """
        raise NotImplementedError

    def describe(self, operation: str) -> tuple[Description, ...]:
        """Descriptions of an operation's requests and answers: one for each kind of request; empty if it is unknown."""
        found = self.descriptions.get(operation)
        return () if found is None else (found,)


@dataclass(frozen=True, slots=True)
class Mount:
    """A row of the table of mounts: requests with this method and path belong to this dialect.

    Rows of several doors may have the same method and path, if each but one has a `header` or a `key` of its own. The
    one whose header the request has wins, then the one whose key its body has. An unknown path is refused by the
    dialect whose rows share most of its segments.

    Attributes:
        path: `{name}` stands for one segment.
        operation: which of the dialect's operations, as `Call.operation`.
        header: the row is only for requests that have this header.
        accept: if another row has the same path, this row is only for requests that accept this media type by its name;
            `*/*` does not count.
        key: if another row has the same path, this row is only for bodies that are JSON objects with this key.
        socket: the path opens WebSockets.
        large: bodies may have `large_body_limit` bytes in place of `body_limit`, and requests on a WebSocket four
            times `body_limit`.
        keyless: requests need no key. Set also for a socket whose key comes in a message; its session then requires it.
        guest: the path is among the paths of another protocol; that protocol's dialect refuses the unknown paths next
            to it.
        door: the name of its door. Set when the doors are joined.
    """

    method: str
    path: str
    dialect: Dialect
    operation: str
    header: str = ""
    accept: str = ""
    key: str = ""
    socket: bool = False
    large: bool = False
    keyless: bool = False
    guest: bool = False
    door: str = ""
