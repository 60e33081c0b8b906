"""A path of several protocols -> the protocol of the body, by the body's keys: `/tokenize` of vLLM and of TGI."""

from collections.abc import Awaitable, Mapping

import msgspec
from typing_extensions import override

from tg_base.config import GatewayConfig
from tg_gateway.dialects import Answer, Ask, Call, Description, Dialect, StreamedAnswer, abridge_body
from tg_schema import TgError, decode
from tg_schema.errors import BadRequest


class KeyedDialect(Dialect):
    """Passes each request on to a dialect, under that dialect's name of the operation.

    Args:
        keyed: maps a key that only one protocol's bodies have to that protocol's dialect and operation; the first match
            wins.
        otherwise: the dialect and operation of all other bodies, including those that are no JSON.
    """

    def __init__(self, keyed: Mapping[str, tuple[Dialect, str]], otherwise: tuple[Dialect, str]) -> None:
        self._keyed = keyed
        self._otherwise = otherwise

    @override
    def configure(self, config: GatewayConfig) -> "KeyedDialect":
        other, named = self._otherwise
        keyed = {key: (dialect.configure(config), operation) for key, (dialect, operation) in self._keyed.items()}
        return KeyedDialect(keyed, (other.configure(config), named))

    @override
    def parse(self, call: Call) -> Ask | Answer | Awaitable[Ask | Answer | StreamedAnswer]:
        dialect, call.operation = self._choose(call.body)
        return dialect.parse(call)

    @override
    def abridge(self, body: bytes) -> bytes:
        return abridge_body(body, self._keyed)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        dialect, operation = self._choose(call.body)
        call.operation = call.operation and operation
        return dialect.refuse(error, status, call)

    @override
    def describe(self, operation: str) -> tuple[Description, ...]:
        choices = (*self._keyed.values(), self._otherwise)
        return tuple(each for dialect, name in choices for each in dialect.describe(name))

    def _choose(self, body: bytes) -> tuple[Dialect, str]:
        try:
            keys = decode(dict[str, msgspec.Raw], body).keys()
        except BadRequest:
            return self._otherwise
        return next((choice for key, choice in self._keyed.items() if key in keys), self._otherwise)
