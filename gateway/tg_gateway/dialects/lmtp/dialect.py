"""LMTP over HTTP: nothing but the handshake, and what refuses it."""

from typing import Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Answer, Ask, Call, Conversation, Dialect, Socket
from tg_gateway.dialects.lmtp.conversation import LmtpConversation
from tg_schema import TgError, encode
from tg_schema.errors import BadRequest


class _Refusal(msgspec.Struct, frozen=True):
    error: str
    code: str


class Lmtp(Dialect):
    """A WebSocket; `LmtpConversation` has its messages."""

    @override
    def parse(self, call: Call) -> Ask | Answer:
        raise BadRequest("LMTP is spoken on a WebSocket: ask for an upgrade")

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return Answer(encode(_Refusal(error.message, error.type)), status)

    @override
    def converse(self, socket: Socket) -> Conversation:
        return LmtpConversation(socket)


LMTP: Final = Lmtp()
