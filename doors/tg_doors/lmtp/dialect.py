"""LMTP over HTTP: only the handshake, and its refusals."""

from types import MappingProxyType
from typing import Final

import msgspec
from typing_extensions import override

from tg_doors.lmtp.conversation import LmtpConversation
from tg_gateway.dialects import Answer, Ask, Call, Conversation, Description, Dialect, Mount, Socket
from tg_schema import TgError, encode
from tg_schema.errors import BadRequest


class LmtpRefusal(msgspec.Struct, frozen=True):
    """A refusal of the handshake."""

    error: str
    code: str


class Lmtp(Dialect):
    """A WebSocket; `LmtpConversation` has its messages."""

    descriptions = MappingProxyType(
        {
            "converse": Description(
                group="LMTP",
                summary="Open a WebSocket for LMQL's clients",
                failure=LmtpRefusal,
                messages=LmtpConversation.BODIES,
                raises=(BadRequest,),
            )
        }
    )

    @override
    def parse(self, call: Call) -> Ask | Answer:
        raise BadRequest("LMTP is spoken on a WebSocket: ask for an upgrade")

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return Answer(encode(LmtpRefusal(error.message, error.type)), status)

    @override
    def converse(self, socket: Socket) -> Conversation:
        return LmtpConversation(socket)


LMTP: Final = Lmtp()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("GET", "/lmtp", LMTP, "converse", socket=True, large=True),
    # LMQL's client opens its socket at the bare address; without a handshake that path is another protocol's. The
    # header distinguishes it from an upgrade to HTTP/2, which some clients offer everywhere.
    Mount("GET", "/", LMTP, "converse", header="Sec-WebSocket-Key", socket=True, large=True),
)
"""Where LMTP's clients find us."""
