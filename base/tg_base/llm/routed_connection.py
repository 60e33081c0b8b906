"""SdkProvider -> one of an SDK's calls: requests for something else than an answer have a URL of their own."""

from collections.abc import Awaitable, Mapping
from typing import Any

import msgspec

from tg_base.llm.http import HttpAnswer, PreparedConnection


class EmbeddingCall(msgspec.Struct, frozen=True):
    """The body of a request for vectors, where a body alone is one for an answer."""

    body: Any


class RoutedConnection:
    """The connection for answers, and others for calls of other classes.

    Args:
        answers: for answers and the list of models.
        others: the connections for calls of these classes, whose `body` they post; they have the same pool.
    """

    def __init__(self, answers: PreparedConnection, others: Mapping[type, PreparedConnection]) -> None:
        self._answers = answers
        self._others = others

    def post(self, call: Any) -> Awaitable[HttpAnswer]:
        """See `SdkConnection`."""
        other = self._others.get(type(call))
        return self._answers.post(call) if other is None else other.post(call.body)

    def models(self) -> Awaitable[HttpAnswer]:
        """See `SdkConnection`."""
        return self._answers.models()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._answers.aclose()
