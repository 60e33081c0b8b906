"""Protocol -> gateway: what a dialect can do, and where it is mounted."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from tg_base.config import GatewayConfig
from tg_gateway.description import Description
from tg_gateway.dialects.answers import Answer, StreamedAnswer
from tg_gateway.dialects.call import Ask, Call
from tg_gateway.dialects.conversation import Conversation, Socket
from tg_schema import TgError


class Dialect(ABC):
    """One protocol: how it asks, answers and refuses. It has no state; that of a request is in its writer.

    Attributes:
        descriptions: of its operations, for the gateway's OpenAPI document.
        restarts: the name by which any gateway finds it again for the answers that wait (`Waiting.dialect`); "" where
            none waits.
    """

    restarts: ClassVar[str] = ""
    descriptions: ClassVar[Mapping[str, Description]] = MappingProxyType({})

    def configure(self, config: GatewayConfig) -> "Dialect":
        """This protocol as an operator has configured it. Most have nothing to configure.

        Raises:
            BadRequest: a value of the configuration is wrong; `option` has its keys within the gateway's table.
        """
        return self

    def check_head(self, call: Call) -> None:  # noqa: B027 - most protocols need nothing of it
        """Refuse what can be told before the body is read. `call.body` is empty.

        Raises:
            TgError: as `parse`.
        """

    @abstractmethod
    def parse(self, call: Call) -> Ask | Answer | Awaitable[Ask | Answer | StreamedAnswer]:
        """What a request wants; to be awaited where that depends on what is kept (`call.kept`).

        Raises:
            TgError: it is wrong; the message names what. `refuse` makes it this protocol's answer.
        """

    def restart(self, call: Call) -> Ask:
        """The same ask again, of an answer that has waited; `call.body` is that of its `Waiting`.

        Raises:
            TgError: it cannot be asked any more.
        """
        raise NotImplementedError

    def abridge(self, body: bytes) -> bytes:
        """What `refuse` reads of a body, in place of a large one, which is not kept; nothing where it reads none.

        It is called where that body was parsed. Most refusals do not depend on the body.
        """
        return b""

    @abstractmethod
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        """The answer to a request that failed before its first byte.

        Args:
            error: why. Its `retry_after` is already on its way as a header.
            status: what HTTP has for it: 401 without a right key, 404 for an unknown path, 405 and 413 among others.
            call: what is known of the request. Its body is empty where it was refused unread; a large one that has been
                parsed is what `abridge` made of it.
        """

    def converse(self, socket: Socket) -> Conversation:
        """The conversation of a new WebSocket, on the mounts that are sockets.

        Raises:
            NotImplementedError: the protocol has no WebSocket.
        """
        raise NotImplementedError

    def describe(self, operation: str) -> tuple[Description, ...]:
        """What an operation takes and answers; several where several kinds of requests share it, none if unknown."""
        found = self.descriptions.get(operation)
        return () if found is None else (found,)


@dataclass(frozen=True, slots=True)
class Mount:
    """A row of the table of mounts: requests of this method and path are this dialect's.

    Where rows have the same method and path, the first with a header that the request has takes it; otherwise the
    first without. Paths that no row has are refused by the dialect whose rows have most of the path's segments.

    Attributes:
        path: `{name}` stands for one segment.
        operation: which of the dialect's operations, as `Call.operation`.
        header: the row is for requests with this header alone.
        socket: the path opens WebSockets.
        large: bodies may have `large_body_limit` bytes in place of `body_limit`, and requests on a WebSocket four
            times `body_limit`.
        keyless: nobody has to show a key. A socket whose key comes in a message has `keyless`; its session asks for it.
    """

    method: str
    path: str
    dialect: Dialect
    operation: str
    header: str = ""
    socket: bool = False
    large: bool = False
    keyless: bool = False
