"""SdkProvider -> one of an SDK's calls: requests other than for an answer go to URLs of their own."""

from collections.abc import Awaitable, Mapping
from typing import Any

import msgspec

from tg_base.llm.http import HttpAnswer, PreparedConnection


class RouteCall(msgspec.Struct, frozen=True):
    """A request for something other than an answer, for which the body alone is enough.

    Attributes:
        body: what is posted.
        route: which of the connection's routes it is for.
    """

    body: Any
    route: str


class EmbeddingCall(RouteCall, frozen=True):
    """A request for vectors."""

    route: str = "embeddings"


class RoutedConnection:
    """The connection for answers, and others for other routes.

    Args:
        answers: for answers and the list of models.
        others: by the route of a `RouteCall`; they have the same pool.
    """

    def __init__(self, answers: PreparedConnection, others: Mapping[str, PreparedConnection]) -> None:
        self._answers = answers
        self._others = others

    def post(self, call: Any) -> Awaitable[HttpAnswer]:
        """See `SdkConnection`."""
        return self._others[call.route].post(call.body) if isinstance(call, RouteCall) else self._answers.post(call)

    def models(self) -> Awaitable[HttpAnswer]:
        """See `SdkConnection`."""
        return self._answers.models()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._answers.aclose()
